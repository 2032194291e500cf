"""The state of all files that a request matches, each in one snapshot, and the choice among copies.

A file is identified by its id, not by its path. If a file has several copies, only the newest is read
(decisions/0036).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from eosdb import PartitionOffsets, TopicPartition
from eosdb.admin import summary
from eosdb.errors import EosdbError
from eosdb.model.notices import catalog
from eosdb.spark_io.planning import files
from eosdb.spark_io.planning.errors import SkippedFile, SparkOptionError, with_advice
from eosdb.spark_io.planning.known_files import KnownFiles, MarksOf
from eosdb.spark_io.planning.offsets import ONLY, MarkedOffset
from eosdb.spark_io.planning.options import ReadOptions


class State(NamedTuple):
    """The offsets of a partition, and the default end of reading. Below this end every transaction is
    complete, even across partitions."""

    offsets: PartitionOffsets
    end: int


class FileState(NamedTuple):
    """The requested partitions of a file in one snapshot, and the mark of its history. `departures` has the
    requested marks that belong to another history, with the reasons."""

    path: str
    file_id: str
    position: int
    mark: str
    states: dict[TopicPartition, State]
    departures: dict[str, str]
    topic_ids: Mapping[str, str] = MappingProxyType({})
    """Topic ids by name; a recreated topic has a new id. Empty if the ids are unknown."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The files to read, by id (or `ONLY`), in the order of their paths, and the skipped files."""

    files: Mapping[str, FileState]
    skipped: tuple[SkippedFile, ...] = ()


class Lens:
    """Takes the cuts of one request. Reopens only files that may have changed."""

    def __init__(self, request: files.Given, options: ReadOptions) -> None:
        self._request: Final = request
        self._options: Final = options
        self._known_files = KnownFiles(self._look)
        self._copies: dict[str, frozenset[str]] = {}
        self._told: set[SkippedFile] = set()

    def cut(self, marks_of: MarksOf = lambda file_id: (), *, may_be_gone: bool = False) -> Cut:
        """Take a cut. `marks_of` returns the remembered marks of a file id. Raises SparkOptionError if
        copies of one file have diverged, or if no file has a named topic or partition (unless
        `may_be_gone`: a stream that has read the topic reports the loss itself). Raises EosdbError for an
        unreadable file, unless the options allow to skip it."""
        ignoring = self._options.ignoring
        listed = files.resolve(self._request, may_be_missing=ignoring.missing)
        skipped = [SkippedFile(path, "there is no such file") for path in listed.missing]

        def all_marks(file_id: str) -> Collection[str]:
            marks = marks_of(file_id if listed.is_fleet else ONLY)
            copies = self._copies.get(file_id)
            return marks if copies is None else {*marks, *copies}

        readable = []
        for path, one in self._known_files.looks(listed.paths, all_marks).items():
            if not isinstance(one, EosdbError):
                readable.append(one)
            elif ignoring.allows(one):
                skipped.append(SkippedFile(path, str(one)))
            else:
                raise with_advice(one) if listed.is_fleet else one
        self._known_files.forget_others(listed.paths)
        are_all = bool(listed.paths) and not skipped
        if listed.is_fleet:
            by_key, copies_ = self._one_of_each(readable, all_marks)
            skipped += copies_
        else:
            by_key = {ONLY: readable[0]} if readable else {}
        if are_all and not may_be_gone:
            check_named(by_key.values(), self._options)
        for file in skipped:
            if file not in self._told:
                self._told.add(file)
                catalog.FILE_LEFT_OUT.say(file=file.path, cause=file.reason)
        return Cut(by_key, tuple(skipped))

    def _look(self, path: str, marks_of: MarksOf) -> FileState:
        file = (files.look if files.is_remote(path) else summary.look)(path, marks_of)
        is_committed = self._options.isolation_level == "read_committed"
        states = {
            tp: State(offsets, end if is_committed else offsets.log_end_offset)
            for tp, (offsets, end) in file.cut.items()
            if self._options.wants(tp)
        }
        return FileState(
            path,
            file.file_id,
            file.position,
            file.mark,
            states,
            file.departures,
            file.topic_ids,
        )

    def _one_of_each(
        self, readable: Iterable[FileState], marks_of: MarksOf
    ) -> tuple[dict[str, FileState], list[SkippedFile]]:
        by_id: dict[str, FileState] = {}
        several: dict[str, list[FileState]] = {}
        for one in readable:
            if one.file_id in by_id:
                several.setdefault(one.file_id, [by_id[one.file_id]]).append(one)
            else:
                by_id[one.file_id] = one
        self._copies = {
            file_id: frozenset(copy.mark for copy in copies) for file_id, copies in several.items()
        }
        skipped = []
        for file_id, copies in several.items():
            newest = self._with_copies(max(copies, key=lambda one: one.position), marks_of)
            by_id[file_id] = newest
            for copy in copies:
                if copy.path != newest.path:
                    skipped.append(_older(copy, newest))
        return by_id, skipped

    def _with_copies(self, newest: FileState, marks_of: MarksOf) -> FileState:
        """Return the newest copy, compared with the other copies' marks; looks again if needed."""
        look = self._known_files.looks([newest.path], marks_of)[newest.path]
        if isinstance(look, EosdbError):
            raise with_advice(look)
        return look


def check_named(states: Iterable[FileState], options: ReadOptions) -> None:
    """Raises SparkOptionError for a named topic or partition that is in none of the files."""
    if options.assigned is None and options.topics is None:
        return
    there = {tp for file in states for tp in file.states}
    topics = {tp.topic for tp in there}
    missing = sorted(
        {str(tp) for tp in (options.assigned or ()) if tp not in there}
        | {topic for topic in (options.topics or ()) if topic not in topics}
    )
    if missing:
        raise SparkOptionError(f"there is no {', '.join(missing)} in any of the files")


def _older(copy: FileState, newest: FileState) -> SkippedFile:
    """Return the copy as a skipped file. Raises SparkOptionError if both copies have changed."""
    if copy.mark in newest.departures:
        raise SparkOptionError(
            f"{newest.path} and {copy.path} are copies of one file (id {copy.file_id}), and each has been "
            "written to since: read together, their common records would count twice. Move the wrong one "
            "away, or name the files to read"
        )
    return SkippedFile(copy.path, f"it is a copy of {newest.path}, which is as new or newer")


def other_file(tp: TopicPartition, marked: MarkedOffset, file: FileState) -> str | None:
    """Why the offset does not belong to this file's history; None if nothing indicates that."""
    if marked.mark is not None and marked.mark in file.departures:
        return file.departures[marked.mark]
    state = file.states.get(tp)
    if state is None or other_topic(tp, marked, file) is not None:
        return None
    if marked.offset > (end := state.offsets.last_stable_offset):
        return f"the log goes to {end} only: this is another file, or an older copy"
    return None


def other_topic(tp: TopicPartition, marked: MarkedOffset, file: FileState) -> str | None:
    """Why the offset belongs to an earlier topic of this name; None if nothing indicates that."""
    if tp.topic not in {there.topic for there in file.states}:
        return "the topic has been deleted"
    now = file.topic_ids.get(tp.topic)
    if None in (marked.topic_id, now) or marked.topic_id == now:
        return None
    return f"the topic was deleted and recreated: its id is {now}, not {marked.topic_id}"
