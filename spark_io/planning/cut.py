"""What is in all files, each at one instant, and which files count.

A file is known by its id: wherever it lies, and whatever its name is. Copies of one file in a fleet are one
file, of which the newest counts (decisions/0036).
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

from . import files, remote
from .errors import SparkOptionError
from .known_files import Manifest, MarksOf
from .offsets import ONLY, MarkedOffset
from .options import ReadOptions
from .skipped import SkippedFile, with_advice


class State(NamedTuple):
    """Where a partition begins and ends, and how far it is read by default: only so far that no transaction
    is seen in part, not even across partitions."""

    offsets: PartitionOffsets
    end: int


class FileState(NamedTuple):
    """Every wanted partition of a file at one instant, and a mark that identifies its history. `departures`
    gives the reason for marks that are not part of this file's history."""

    path: str
    file_id: str
    position: int
    mark: str
    states: dict[TopicPartition, State]
    departures: dict[str, str]
    topic_ids: Mapping[str, str] = MappingProxyType({})
    """By name; a topic made anew has another. Empty where they are not known."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The files that count, by id (or `ONLY`), in the order of their paths; and those left out."""

    files: Mapping[str, FileState]
    skipped: tuple[SkippedFile, ...] = ()


class Lens:
    """Makes one cut after another of the same request, and opens only what may have changed."""

    def __init__(self, asked: files.Given, options: ReadOptions) -> None:
        self._asked: Final = asked
        self._options: Final = options
        self._manifest = Manifest(self._look)
        self._copies: dict[str, frozenset[str]] = {}
        """The marks of copies that lie beside a file, by its id."""
        self._told: set[SkippedFile] = set()

    def cut(self, marks_of: MarksOf = lambda file_id: (), *, may_be_gone: bool = False) -> Cut:
        """`marks_of` names the remembered marks of a file by id. Named topics `may_be_gone` for whoever has
        read them before, and tells of it.

        Raises SparkOptionError if a named topic or partition is in none of the files, or copies of one file
        have parted; and EosdbError for a file that cannot be read, unless it may be left out.
        """
        ignoring = self._options.ignoring
        listed = files.resolve(self._asked, may_be_missing=ignoring.missing)
        skipped = [SkippedFile(path, "there is no such file") for path in listed.missing]

        def asked(file_id: str) -> Collection[str]:
            marks = marks_of(file_id if listed.is_fleet else ONLY)
            copies = self._copies.get(file_id)
            return marks if copies is None else {*marks, *copies}

        found = []
        for path, one in self._manifest.looks(listed.paths, asked).items():
            if not isinstance(one, EosdbError):
                found.append(one)
            elif ignoring.allows(one):
                skipped.append(SkippedFile(path, str(one)))
            else:
                raise with_advice(one) if listed.is_fleet else one
        self._manifest.forget_others(listed.paths)
        are_all = bool(listed.paths) and not skipped
        if listed.is_fleet:
            by_key, copies_ = self._one_of_each(found, asked)
            skipped += copies_
        else:
            by_key = {ONLY: found[0]} if found else {}
        if are_all and not may_be_gone:
            check_named(by_key.values(), self._options)
        self.tell(skipped)
        return Cut(by_key, tuple(skipped))

    def tell(self, skipped: Iterable[SkippedFile]) -> None:
        """Log what is left out, once."""
        for one in skipped:
            if one not in self._told:
                self._told.add(one)
                catalog.FILE_LEFT_OUT.say(file=one.path, cause=one.reason)

    def _look(self, path: str, marks_of: MarksOf) -> FileState:
        found = (remote.look if remote.is_remote(path) else summary.look)(path, marks_of)
        states = {
            tp: State(offsets, end if self._options.read_committed else offsets.log_end_offset)
            for tp, (offsets, end) in found.cut.items()
            if self._options.wants(tp)
        }
        return FileState(
            path,
            found.file_id,
            found.position,
            found.mark,
            states,
            found.departures,
            found.topic_ids,
        )

    def _one_of_each(
        self, found: Iterable[FileState], marks_of: MarksOf
    ) -> tuple[dict[str, FileState], list[SkippedFile]]:
        by_id: dict[str, FileState] = {}
        several: dict[str, list[FileState]] = {}
        for one in found:
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
        """Looked at again, unless it is known already whether the copies belong to its history."""
        found = self._manifest.looks([newest.path], marks_of)[newest.path]
        if isinstance(found, EosdbError):
            raise with_advice(found)
        return found


def check_named(found: Iterable[FileState], options: ReadOptions) -> None:
    """Raises SparkOptionError for a named topic or partition that is in none of the files."""
    if options.assigned is None and options.topics is None:
        return
    there = {tp for file in found for tp in file.states}
    topics = {tp.topic for tp in there}
    missing = sorted(
        {str(tp) for tp in (options.assigned or ()) if tp not in there}
        | {topic for topic in (options.topics or ()) if topic not in topics}
    )
    if missing:
        raise SparkOptionError(f"there is no {', '.join(missing)} in any of the files")


def _older(copy: FileState, newest: FileState) -> SkippedFile:
    """Raises SparkOptionError if the copy has gone on by itself."""
    if copy.mark in newest.departures:
        raise SparkOptionError(
            f"{newest.path} and {copy.path} are copies of one file (id {copy.file_id}), and each has been "
            "written to since: read together, what they had before would count twice. Move the wrong one "
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
    """Why the offset is not one of the topic that has the name now; None if nothing indicates that."""
    if tp.topic not in {there.topic for there in file.states}:
        return "the topic has been deleted"
    now = file.topic_ids.get(tp.topic)
    if None in (marked.topic_id, now) or marked.topic_id == now:
        return None
    return f"the topic was deleted and made anew: its id is {now}, not {marked.topic_id}"
