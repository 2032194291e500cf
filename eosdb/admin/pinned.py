"""SQL for programs that read ranges of offsets at some later time, by SQLite alone (Spark over JDBC): the
first offset fails when file or topic is another by then."""

from __future__ import annotations

from typing import Final

TOPIC_NUMBERS: Final = "SELECT topic, topic_id FROM topics"


def first_offset(start: int, file_id: str, topic: str, topic_number: int) -> str:
    """An expression for the lower bound of a range. SQLite's JSON functions quote what they fail on, which
    is the only way to have an error of one's own in a SELECT."""
    # decisions/0057: as the bound of an index it is computed whatever the file has.
    return (
        f"CASE WHEN (SELECT file_id FROM eosdb_file) = '{file_id}' AND EXISTS (SELECT 1 FROM topics "
        f"WHERE topic = '{topic}' AND topic_id = {topic_number}) THEN {start} ELSE json_extract('{{}}', "
        f"'since this was planned the file was replaced, or topic {topic} was deleted or made anew: make "
        "the DataFrame again') END"
    )
