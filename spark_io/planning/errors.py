"""Errors in the use of the Spark source and sinks, and the errors of files that may be skipped.

Options ignoreCorruptFiles and ignoreMissingFiles have Spark's meaning. A corrupt file is damaged,
incomplete, of another schema, or not an eosdb file; a missing file existed before. Both are errors unless
the option is set; then each skipped file is logged.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from eosdb import errors


class SparkOptionError(errors.ConfigError):
    """An option of the data source is unknown or invalid; the message names it."""


class OtherTargetError(errors.BatchDiffersError):
    """A batch with this number and name was already written, to other topics than this one."""


_CORRUPT: Final = (
    errors.CorruptDatabaseError,
    errors.CorruptRecordError,
    errors.NotAnEosdbFileError,
    errors.SchemaOutOfDateError,
    errors.SchemaTooNewError,
)


class SkippedFile(NamedTuple):
    path: str
    reason: str


class Ignoring(NamedTuple):
    """The options ignoreCorruptFiles and ignoreMissingFiles."""

    corrupt: bool = False
    missing: bool = False

    def allows(self, error: errors.EosdbError) -> bool:
        """Whether a file may be skipped that raised this error."""
        return (self.corrupt and isinstance(error, _CORRUPT)) or (
            self.missing and isinstance(error, errors.DatabaseNotFoundError)
        )


def with_advice(error: errors.EosdbError) -> errors.EosdbError:
    """Add to a file's error the option that skips such files."""
    if isinstance(error, _CORRUPT):
        return type(error)(f"{error}. Set ignoreCorruptFiles=true to leave such files out")
    if isinstance(error, errors.DatabaseNotFoundError):
        return type(error)(f"{error}. Set ignoreMissingFiles=true to leave such files out")
    return error
