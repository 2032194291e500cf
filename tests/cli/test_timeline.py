"""The picture: well-formed in each form, with every name in it, and deterministic."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import eosdb
from eosdb import OffsetAndMetadata, Record, RecordBatch, TopicPartition

pytestmark = pytest.mark.slow

Run = Callable[..., Result]
ODD = 'a <b> & "c" ü\n\x1b[31m $x^2$'


@pytest.fixture
def orders(run: Run, db_path: Path) -> Run:
    """Three partitions; one with transactions of an odd name, one of plain records, one empty."""
    with eosdb.connect(db_path, durability="off", clock=eosdb.ManualClock(10**12)) as db:
        db.admin.create_topic("orders", partitions=3)
        tp = TopicPartition("orders", 0)
        for name, end in ((ODD, "commit"), ("shop-2", "abort"), ("open one", None)):
            producer = db.producer(transactional_id=name)
            producer.init_transactions()
            producer.begin_transaction()
            for _ in range(30):
                producer.send("orders", b"v", partition=0)
            producer.flush()
            if end is not None:
                getattr(producer, f"{end}_transaction")()
        db.broker.append(TopicPartition("orders", 1), RecordBatch([Record(value=b"v")] * 5))
        for i in range(40):
            db.broker.offset_commit(f"group {i} <{ODD}>", {tp: OffsetAndMetadata(i // 20)})
    return run


def draw(run: Run, path: Path, *options: str) -> bytes:
    result = run("timeline", "orders", "-o", str(path), *options)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    return path.read_bytes()


def test_svg_has_words_as_text_and_tells_of_each_bar(orders: Run, tmp_path: Path) -> None:
    content = draw(orders, tmp_path / "x.svg")
    root = ET.fromstring(content)
    text = " ".join(root.itertext())
    for word in (
        "Timeline of orders",
        "partition 2",
        "no records",
        "log 0 to 92, LSO 62",
        "shop-2",
    ):
        assert word in text
    titles = [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any(
        'a <b> & "c" ü\\n\\x1b[31m $x^2$: committed, 30 records' in title for title in titles
    )
    assert draw(orders, tmp_path / "y.svg") == content


def test_a_window_and_a_partition_can_be_drawn(orders: Run, tmp_path: Path) -> None:
    options = ("--partition", "0", "--from-offset", "10", "--before-offset", "40")
    root = ET.fromstring(draw(orders, tmp_path / "x.svg", *options))
    text = " ".join(root.itertext())
    assert "partition 0" in text
    assert "partition 1" not in text


def test_too_many_transactions_are_aggregated_and_said_so(
    orders: Run, db_path: Path, tmp_path: Path
) -> None:
    with eosdb.connect(db_path, durability="off") as db:
        producer = db.producer(transactional_id="busy")
        producer.init_transactions()
        for _ in range(400):
            with producer.transaction():
                producer.send("orders", b"v", partition=2)
    text = " ".join(ET.fromstring(draw(orders, tmp_path / "x.svg")).itertext())
    assert "Too many transactions to be drawn one by one: partition 2." in text


@pytest.fixture
def busy(run: Run, db_path: Path) -> Run:
    """800 short transactions a second apart, two of them aborted; one long, one open; a lull of an hour."""
    clock = eosdb.ManualClock(1_795_348_800_000)
    with eosdb.connect(db_path, durability="off", clock=clock) as db:
        db.admin.create_topic("orders")
        names = ("busy", "long one", "open one")
        busy, long, still_open = (
            db.producer(transactional_id=name, transaction_timeout_ms=900_000) for name in names
        )
        for producer in (busy, long, still_open):
            producer.init_transactions()
        for number in range(800):
            clock.advance(3_600_000 if number == 600 else 1_000)
            if number in (100, 795):
                other = long if number == 100 else still_open
                other.begin_transaction()
                other.send("orders", b"v")
                other.flush()
            if number == 400:
                long.commit_transaction()
            busy.begin_transaction()
            busy.send("orders", b"v")
            busy.flush()
            if number in (250, 700):
                busy.abort_transaction()
            else:
                busy.commit_transaction()
        db.abandon()
    return run


SVG = "{http://www.w3.org/2000/svg}"


def shapes(root: ET.Element, prefix: str) -> list[ET.Element]:
    return [shape for shape in root.iter() if shape.get("id", "").startswith(prefix)]


def heights_of(band: ET.Element) -> list[float]:
    """Of its columns, in pixels."""
    return [float(height) for height in re.findall(r"v-([\d.]+)", band.get("d", ""))]


@pytest.mark.parametrize("by", ["offset", "time"])
def test_many_are_bands_of_colour_with_the_long_and_the_open_ones_above(
    busy: Run, tmp_path: Path, by: str
) -> None:
    content = draw(busy, tmp_path / "x.svg", "--by", by, "--until", "2026-11-22T13:30")
    root = ET.fromstring(content)
    bands = {band.get("id"): band for band in shapes(root, "band-")}
    assert sorted(map(str, bands)) == ["band-0-aborted", "band-0-committed", "band-0-open"]
    bars = shapes(root, "transaction-0-")
    described = [bar.findtext(f".//{SVG}title", "").partition(",")[0] for bar in bars]
    assert described == ["long one: committed", "open one: open"]
    assert sum(1 for _ in root.iter(f"{SVG}path")) < 120
    assert min(heights_of(bands["band-0-aborted"])) >= 3
    text = list(root.itertext())
    assert "long one" in text
    assert "open one" in text


def test_the_axis_has_round_offsets_or_times(busy: Run, tmp_path: Path) -> None:
    def words(*options: str) -> list[str]:
        root = ET.fromstring(draw(busy, tmp_path / "x.svg", *options))
        return [(text.text or "").strip() for text in root.iter(f"{SVG}text")]

    by_offset = words("--from-offset", "0", "--before-offset", "20")
    assert {"0", "10", "20"} <= set(by_offset)
    by_time = words("--by", "time", "--until", "2026-11-22T12:01")
    assert {"2026-11-22 12:00:10", "12:00:20", "12:00:50"} <= set(by_time)


def test_a_window_of_time_can_be_drawn(busy: Run, tmp_path: Path) -> None:
    window = ("--since", "2026-11-22T12:00:11Z", "--until", "1795348820000")
    for by in ("offset", "time"):
        root = ET.fromstring(draw(busy, tmp_path / "x.svg", "--by", by, *window))
        assert "9 transactions: 9 committed" in " ".join(root.itertext())
        assert len(shapes(root, "transaction-0-")) == 9


def test_what_is_no_time_and_no_axis_is_a_usage_error(orders: Run, tmp_path: Path) -> None:
    for option in (("--since", "noon"), ("--until", "12:00"), ("--by", "size")):
        result = orders("timeline", "orders", "-o", str(tmp_path / "x.svg"), *option)
        assert result.exit_code == 2, option


def test_what_cannot_be_drawn_or_written_is_one_line(orders: Run, tmp_path: Path) -> None:
    for arguments in (
        ("nowhere", "-o", str(tmp_path / "x.svg")),
        ("orders", "--partition", "9", "-o", str(tmp_path / "x.svg")),
        ("orders", "--from-offset", "9", "--before-offset", "3", "-o", str(tmp_path / "x.svg")),
        ("orders", "--since", "9", "--until", "3", "-o", str(tmp_path / "x.svg")),
        ("orders", "-o", str(tmp_path / "no/such/folder/x.svg")),
    ):
        result = orders("timeline", *arguments)
        assert result.exit_code == 1, arguments
        assert len(result.stderr.splitlines()) == 1


def test_in_the_terminal_each_outcome_has_a_character_of_its_own(
    orders: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    result = orders("timeline", "orders")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    bars = next(line for line in lines if line.startswith("a <b>"))
    assert re.fullmatch(r'a <b> & "c" ü\\n\\x1b\[31m \$x\^2\$█+▌shop-2╳+open one░+', bars)
    for word in (
        "partition 2     0 transactions",
        "no records",
        "log 0 to 92, LSO 62",
        "▲",
        "·····",
    ):
        assert word in result.stdout


def test_in_the_terminal_many_are_columns_as_wide_as_it(
    busy: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = busy("timeline", "orders").stdout.splitlines()
    ground = lines[next(i for i, line in enumerate(lines) if line.startswith("┴")) - 1]
    assert (len(ground), set(ground)) == (80, set("█╳░"))
    assert ground.count("╳") == 2
    bars = next(line for line in lines if "long one" in line)
    assert re.fullmatch(r" +long one█+▌ +open one ░", bars)
    by_time = busy("timeline", "orders", "--by", "time", "--until", "2026-11-22T13:30").stdout
    assert re.search(r"open one░+$", by_time, re.MULTILINE)
    assert "2026-11-22" in by_time


def test_an_empty_topic_is_drawn(run: Run, tmp_path: Path) -> None:
    assert run("init").exit_code == 0
    assert run("topics", "create", "orders").exit_code == 0
    assert b"no records" in draw(run, tmp_path / "x.svg")
