"""Bytes of records as text in SQL, without a function that only eosdb registers."""

from __future__ import annotations

from typing import Final

_WIDTH: Final = 16


def is_not_utf8(value: str) -> str:
    """SQL: whether a BLOB holds anything but UTF-8, which Python cannot read as text. SQLite decodes cut
    and overlong sequences without an error, but their code points, encoded again, give other bytes.
    Sixteen characters in a step cost a quarter of the time of one. U+FFFE and U+FFFF, no characters, count
    too."""
    sixteen = (
        f"substr(CAST(substr({value}, %s, {4 * _WIDTH}) AS TEXT) || '{' ' * _WIDTH}', 1, {_WIDTH})"
    )
    after = "i + length(CAST(c AS BLOB))"
    again = ", ".join(f"unicode(substr(c, {k}, 1))" for k in range(1, _WIDTH + 1))
    return f"""EXISTS (
                WITH RECURSIVE walk(i, c) AS (
                    SELECT 1, {sixteen % 1}
                    UNION ALL
                    SELECT {after},
                        {sixteen % after}
                    FROM walk WHERE {after} <= length({value})
                )
                SELECT 1 FROM walk WHERE c <> char({again})
                )"""


ASCII_ALONE: Final = "NOT GLOB '*[^' || char(1) || '-' || char(127) || ']*'"


def as_text(column: str) -> str:
    """SQL: a BLOB as text, with a short cut for ASCII; other bytes become an SQL literal, X'…'. A BLOB
    would make Datasette fail (its issue 2601), and would equal no text."""
    return f"""CASE
                WHEN {column} IS NULL THEN NULL
                WHEN instr({column}, X'00') THEN quote({column})
                WHEN CAST({column} AS TEXT) {ASCII_ALONE} THEN CAST({column} AS TEXT)
                WHEN {is_not_utf8(column)} THEN quote({column})
                ELSE CAST({column} AS TEXT)
            END"""


COMMITTED_TEXTS: Final = f"""-- The committed records with text beside the bytes, and readable times.
CREATE VIEW committed_texts AS
SELECT
    topic, partition, "offset",
    CAST(strftime('%Y-%m-%dT%H:%M:%fZ', timestamp / 1000.0, 'unixepoch') AS TEXT) AS time,
    CAST({as_text("key")} AS TEXT) AS key_text,
    CAST({as_text("value")} AS TEXT) AS value_text,
    key, value, headers, transactional_id
FROM committed_records"""
