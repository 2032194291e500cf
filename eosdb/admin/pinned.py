"""SQL for programs that later read ranges of offsets with SQLite alone (Spark over JDBC): the lower
bound is an expression that fails if the file or the topic has been replaced."""

from __future__ import annotations

from typing import Final

TOPIC_NUMBERS: Final = "SELECT topic, topic_id FROM topics"


def first_offset(start: int, file_id: str, topic: str, topic_number: int) -> str:
    """Return an expression for the lower bound of a range. It fails through SQLite's JSON functions,
    which quote their argument: the only way to raise an error with a text of one's own in a SELECT."""
    told = literal(
        f"since this was planned the file was replaced, or topic {topic} was deleted or recreated: "
        "make the DataFrame again"
    )
    # decisions/0057: SQLite computes the bound of an index before it reads a row, also in an empty file.
    return (
        f"CASE WHEN (SELECT file_id FROM eosdb_file) = {literal(file_id)} AND EXISTS (SELECT 1 FROM topics "
        f"WHERE topic = {literal(topic)} AND topic_id = {topic_number:d}) THEN {start:d} "
        f"ELSE json_extract('{{}}', {told}) END"
    )


def literal(text: str) -> str:
    """Return the text as SQL: a name in a file from elsewhere may be anything."""
    return "'" + text.replace("'", "''") + "'"
