"""Records as columns: producers collect them, and the broker builds rows from them.

A record that a producer holds is four list entries; a `Record` object is built only on request. The broker
also converts other sequences of records to columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, overload

from eosdb.model.values import Header, Record


class RecordColumns(Sequence[Record]):
    """A sequence of records whose fields are in separate lists. `payload` is key, value, key, value, …;
    `headers` is empty if no record has any."""

    __slots__ = ("headers", "payload", "timestamps")

    def __init__(
        self,
        payload: list[bytes | None],
        timestamps: list[int | None],
        headers: list[Sequence[Header]],
    ) -> None:
        self.payload: Final = payload
        self.timestamps: Final = timestamps
        self.headers: Final = headers

    @classmethod
    def of(cls, records: Iterable[Record]) -> RecordColumns:
        """Convert any sequence of four-field records. Raises TypeError and ValueError for other values."""
        keys, values, headers, timestamps = zip(*records, strict=True)
        payload: list[bytes | None] = [None] * (2 * len(keys))
        payload[::2] = keys
        payload[1::2] = values
        return cls(payload, list(timestamps), list(headers) if any(headers) else [])

    def cut(self, count: int) -> None:
        """Keep only the first `count` records, although the lists may differ in length."""
        del self.payload[2 * count :], self.timestamps[count:]

    def lay_headers(self, headers: Sequence[Sequence[Header]], index: int) -> None:
        """Store the headers of the records about to be appended from `index` on. Earlier records without
        headers get an empty tuple. Headers of records that were never appended are removed."""
        assert 0 <= index <= len(self.timestamps), index
        del self.headers[index:]
        if headers:
            self.headers.extend([()] * (index - len(self.headers)))
            self.headers.extend(headers)

    def headers_of_all(self) -> Sequence[Sequence[Header]]:
        """Return the headers of each record, or an empty list if no record has any."""
        missing = len(self.timestamps) - len(self.headers)
        return [*self.headers, *[()] * missing] if self.headers and missing else self.headers

    def __len__(self) -> int:
        return len(self.timestamps)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> RecordColumns: ...

    def __getitem__(self, index: int | slice) -> Record | RecordColumns:
        headers = self.headers_of_all()
        if isinstance(index, slice):
            places = range(len(self))[index]
            if places.step == 1:
                payload = self.payload[2 * places.start : 2 * places.stop]
            else:
                payload = [part for i in places for part in self.payload[2 * i : 2 * i + 2]]
            return RecordColumns(payload, self.timestamps[index], list(headers[index]))
        i = range(len(self))[index]
        return Record(
            self.payload[2 * i],
            self.payload[2 * i + 1],
            headers[i] if headers else (),
            self.timestamps[i],
        )


def piece_length(length: int, size: int, most_records: int, most_bytes: int) -> int:
    """Return the number of records for the next piece, given that `length` records had `size` bytes."""
    assert length > 0, length
    assert size >= 0, size
    return max(1, min(most_records, most_bytes * length // max(size, 1)))
