"""Plays a run on a real file, and writes docs/trial.html, which shows it step by step (`make docs`).

Clients act, a network loses answers, and after each step plain `sqlite3` reads the file's views. The page
has everything in it and asks no server. `python -m scripts.make_trial --keep PATH` keeps the file; a test
compares the committed page with what this program writes.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

import eosdb
from eosdb.model.clock import ManualClock
from eosdb.testing import FaultyTransport

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs/trial.html"
_FRAME: Final = Path(__file__).with_name("trial_page.html")
_COLOURS: Final = ROOT / "eosdb/integrations/ui/static/ui.css"
"""Its first rules are the colours, light and dark."""
_BEGAN_MS: Final = 1_800_000_000_000


class LosesAnswers(FaultyTransport):
    """A network that loses the next `lost` answers. The requests have been carried out."""

    lost = 0

    def ask(self, requests: Sequence[Any], **options: Any) -> list[Any]:
        answers = super().ask(requests, **options)
        if not self.lost:
            return answers
        self.lost -= 1
        return [eosdb.NetworkExceptionError("the connection broke") for _ in requests]


class Row(NamedTuple):
    """A record or a marker, as the view `all_records` has it."""

    value: str | None
    control: str | None
    status: str
    transactional_id: str | None

    @property
    def by(self) -> str:
        return self.transactional_id or "app"

    @property
    def shown(self) -> str:
        return self.value or {"COMMIT": "✓", "ABORT": "✗"}[self.control or ""]

    @property
    def is_for_readers(self) -> bool:
        return self.control is None and self.status != "aborted"


@dataclass(frozen=True, slots=True)
class Step:
    """What a client did, and what the file's views have then; the numbers are the group's."""

    code: str
    answer: str
    records: list[Row]
    stable: int
    position: int
    lag: int
    held_back: int


STORY: Final = (
    (
        "Two tills write in transactions",
        "Anna's till has sent two orders and Ben's one. All three are stored. No reader sees them: the "
        "last stable offset is 0, where the first open transaction begins.",
    ),
    (
        "Anna commits",
        "A marker, ✓, ends her transaction. Both of her orders become readable at once. The last stable "
        "offset moves on to Ben's open transaction.",
    ),
    (
        "Ben aborts",
        "His order stays in the log, and every reader skips it.",
    ),
    (
        "An answer is lost",
        "The app's order is stored, but the answer does not arrive, so the app sends it again. The batch "
        "has the number of the first one: it is there once. The app is an idempotent producer.",
    ),
    (
        "Anna's till hangs, and the kitchen waits",
        "It has sent one order, and does not continue. The app's orders behind it are stored, but readers "
        "would lose the order of the log if they took them. eosdb says who holds them back.",
    ),
    (
        "A new till takes over",
        "It has the same transactional id. The coordinator raises the id's epoch and ends the open "
        "transaction with an abort marker, ✗. The kitchen goes on.",
    ),
    (
        "The zombie wakes up",
        "The old till continues where it hung, and wants to commit. Its epoch is old, so it is fenced: "
        "nothing is written.",
    ),
    (
        "The answer to a commit is lost",
        "The till gives up. Did the commit happen? Kafka's client cannot know. Here anybody who has the "
        "transaction's token asks the file, also after a crash.",
    ),
    (
        "Everything is there once",
        "Sent were tea, milk, soup, rice, fish, and cake by the new till; cola and the first cake were "
        "aborted. Every table of the file equals what its events say.",
    ),
)


def play(path: Path) -> list[Step]:
    """Run the story on a new file."""
    clock, steps, cups = ManualClock(_BEGAN_MS), list[Step](), list[str]()
    with eosdb.connect(path, clock=clock) as db:
        db.admin.create_topic("orders")
        network = LosesAnswers(db.broker)
        anna, ben = (db.producer(transactional_id=name) for name in ("anna", "ben"))
        app = db.producer(transport=network)
        kitchen = db.consumer("kitchen", auto_offset_reset="earliest")
        kitchen.subscribe("orders")

        def did(code: str, answer: str = "") -> None:
            while records := kitchen.poll():
                cups.extend(record.value.decode() for record in records)
            kitchen.commit()
            clock.advance(1_000)
            reads = f"the kitchen has read: {', '.join(cups) or 'nothing'}"
            steps.append(Step(code, f"{answer}\n{reads}".strip(), *_seen(path)))

        for producer in (anna, ben):
            producer.init_transactions()
            producer.begin_transaction()
        _send(anna, "tea", "milk")
        _send(ben, "cola")
        did('anna.send("orders", "tea"); anna.send("orders", "milk")\nben.send("orders", "cola")')
        anna.commit_transaction()
        did("anna.commit_transaction()")
        ben.abort_transaction()
        did("ben.abort_transaction()")
        network.lost = 1
        _send(app, "soup")
        did('app.send("orders", "soup")')
        anna.begin_transaction()
        _send(anna, "cake")
        _send(app, "rice", "fish")
        clock.advance(40_000)
        did("db.why()", db.why()[0].sentence)
        till = db.producer(transactional_id="anna", transport=network)
        till.init_transactions()
        did('till = db.producer(transactional_id="anna"); till.init_transactions()')
        did("anna.commit_transaction()", _refusal(anna.commit_transaction))
        token = till.begin_transaction()
        _send(till, "cake")
        network.lost = 10_000
        refusal = _refusal(till.commit_transaction)
        did("till.commit_transaction(); db.outcome(token)", f"{refusal}\n{db.outcome(token)}")
        network.lost = 0
        report = db.verify()
        did("db.verify()", f"{report.events} events replayed, problems: {list(report.problems)}")
    return steps


def _send(producer: eosdb.Producer, *values: str) -> None:
    for value in values:
        producer.send("orders", value)
    producer.flush()


def _refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except eosdb.EosdbError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("it should have been refused")


def _seen(path: Path) -> tuple[list[Row], int, int, int, int]:
    """What any SQLite client sees: the log, the last stable offset, the group."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as own:
        records = own.execute(
            "SELECT CAST(value AS TEXT), control, status, transactional_id FROM all_records "
            'ORDER BY "offset"'
        ).fetchall()
        (stable,) = own.execute("SELECT last_stable_offset FROM partition_offsets").fetchone()
        group = own.execute(
            "SELECT committed_offset, readable_lag, held_back FROM consumer_offsets"
        ).fetchone()
    return [*map(Row._make, records)], stable, *(group or (0, 0, len(records)))


def page(steps: Sequence[Step]) -> str:
    """The page; without JavaScript it shows all steps below each other."""
    offsets, known, sections = len(steps[-1].records), 0, list[str]()
    for number, step in enumerate(steps):
        sections += _section(number, step, offsets, known)
        known = len(step.records)
    colours = _COLOURS.read_text(encoding="utf-8").partition("* {")[0]
    frame = _FRAME.read_text(encoding="utf-8").replace("{colours}", colours)
    return frame.replace("{steps}", "\n".join(sections))


def _section(number: int, step: Step, offsets: int, known: int) -> Iterator[str]:
    title, text = STORY[number]
    yield f'<section id="step-{number + 1}"><h2>{number + 1}. {title}</h2>'
    yield f'<div class="log" style="--offsets: {offsets}">'
    yield "".join(f'<div class="offset">{offset}</div>' for offset in range(offsets))
    rows = [*step.records, *[None] * (offsets - len(step.records))]
    yield "".join(f'<div class="by">{row.by if row else ""}</div>' for row in rows)
    for offset, row in enumerate(rows):
        kinds = [row.status if row else "none"]
        kinds += ["new"] if row and offset >= known else []
        kinds += ["stable"] if offset == step.stable else []
        yield f'<div class="{" ".join(kinds)}">{row.shown if row else ""}</div>'
    for offset, row in enumerate(rows):
        mark = "○" if offset >= step.stable else "●" if offset < step.position else ""
        kind = "waits" if mark == "○" else "read"
        yield f'<div class="{kind}">{mark if row and row.is_for_readers else ""}</div>'
    facts = (
        ("lso", "last stable offset", step.stable),
        ("", "log end", len(step.records)),
        ("group", "kitchen at", step.position),
        ("", "to read now", step.lag),
        ("", "held back", step.held_back),
    )
    said = "".join(f'<span class="{kind}">{name} <b>{n}</b></span>' for kind, name, n in facts)
    yield f'</div><div class="facts">{said}</div><p>{text}</p>'
    yield f'<pre>{escape(step.code)}</pre><pre class="answer">{escape(step.answer)}</pre></section>'


def main() -> None:
    parser = argparse.ArgumentParser(description="Play the run and write docs/trial.html.")
    parser.add_argument("--keep", type=Path, metavar="PATH", help="keep the file of the run here")
    keep: Path | None = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(page(play(keep or Path(folder, "shop.db"))), encoding="utf-8")


if __name__ == "__main__":
    main()
