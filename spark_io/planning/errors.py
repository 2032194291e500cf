"""Errors in the use of Spark: one class, whose message says what was found and what to do."""

from __future__ import annotations

from eosdb.errors import BatchDiffersError, ConfigError


class SparkOptionError(ConfigError):
    """An option of the data source is unknown or invalid; the message names it."""


class OtherTargetError(BatchDiffersError):
    """A batch of this number and name went into other topics than it would now."""
