"""Files that are left out: options ignoreCorruptFiles and ignoreMissingFiles, with Spark's meaning.

A corrupt file is damaged, copied in part, or of another kind; a missing one was there before. Both are
errors, unless the option allows to go on without them; then each is told of in the log.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from eosdb.errors import (
    CorruptDatabaseError,
    CorruptRecordError,
    DatabaseNotFoundError,
    EosdbError,
    NotAnEosdbFileError,
)

_CORRUPT: Final = (CorruptDatabaseError, CorruptRecordError, NotAnEosdbFileError)


class SkippedFile(NamedTuple):
    """A file that a reader leaves out."""

    path: str
    reason: str


class Ignoring(NamedTuple):
    """The two options."""

    corrupt: bool = False
    missing: bool = False

    def allows(self, error: EosdbError) -> bool:
        """Whether to go on without the file that raised this."""
        return (self.corrupt and isinstance(error, _CORRUPT)) or (
            self.missing and isinstance(error, DatabaseNotFoundError)
        )


def with_advice(error: EosdbError) -> EosdbError:
    """The error of one file among many, with the option that leaves such files out."""
    if isinstance(error, _CORRUPT):
        return type(error)(f"{error}. Set ignoreCorruptFiles=true to leave such files out")
    if isinstance(error, DatabaseNotFoundError):
        return type(error)(f"{error}. Set ignoreMissingFiles=true to leave such files out")
    return error
