"""Errors in the use of the Spark source and sinks."""

from __future__ import annotations

from eosdb.errors import BatchDiffersError, ConfigError


class SparkOptionError(ConfigError):
    """An option of the data source is unknown or invalid; the message names it."""


class OtherTargetError(BatchDiffersError):
    """The batch with this number and name was written to other topics than it would be now."""
