"""The pages as they are sent: what they show, escaped; whom they refuse; what may be changed by whom."""

from __future__ import annotations

import contextlib
import html
import os
import re
import shutil
import socket
import sqlite3
import threading
from pathlib import Path
from urllib.parse import quote, urlencode

import httpx
import pytest
from click.testing import CliRunner

import eosdb
from eosdb import TopicPartition
from eosdb.admin.tools import Tools
from eosdb.cli.main import main
from eosdb.integrations.ui import pages
from eosdb.integrations.ui.pages import Watcher
from eosdb.integrations.ui.server import HEADERS, UiServer, refusal
from eosdb.model.clock import ManualClock
from tests.integrations.ui.files import HARM
from tests.store.locked import SQLITE, held_by

pytestmark = pytest.mark.slow

PAGES = (
    "/", "/topics", "/topics/orders", "/topics/orders/0", "/topics/orders/1", "/topics/orders/0/1",
    "/topics/orders/1/0", "/topics/orders/1/1", "/topics/orders/timeline", "/groups",
    f"/group?id={quote(f'billing {HARM}')}", "/transactions",
    f"/transaction?id={quote(f'refund {HARM}')}", "/dead-letters", "/dead-letters/orders.dlq",
)  # fmt: skip
HARMFUL_GROUP = f"billing {HARM}"
OPEN = {"topic": "orders", "partition": "0", "offset": "5"}


def get(server: UiServer, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{server.port}{path}", headers=headers, timeout=60)


def post(server: UiServer, path: str, form: dict[str, str], **headers: str) -> httpx.Response:
    url = f"http://127.0.0.1:{server.port}{path}"
    return httpx.post(url, data=form, headers=headers, timeout=60)


def test_every_page_is_there_and_writes_no_name_as_markup(changing: UiServer) -> None:
    for path in PAGES:
        answer = get(changing, path)
        assert answer.status_code == 200, path
        assert "<script>window" not in answer.text, path
        assert "<img src" not in answer.text, path
        assert not re.search("[\u202e\x00]", answer.text), path
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "&lt;script&gt;window.hacked" in get(changing, "/groups").text


def test_a_member_whose_session_is_over_is_shown_as_due(db: eosdb.Database, path: Path) -> None:
    with eosdb.connect(path, clock=eosdb.ManualClock(start_ms=1_700_000_000_000)) as long_ago:
        member = long_ago.consumer("left", group_instance_id="desk")
        member.subscribe("orders")
        member.poll(0)
        long_ago.abandon()
    with UiServer(db) as server:
        for page in ("/groups", "/group?id=left"):
            told = get(server, page).text
            assert "its session has ended; the next write to the file removes it" in told
            assert "Stable" not in told


def test_scheduled_records_are_counted_and_marked_when_they_are_late(
    reading: UiServer, path: Path
) -> None:
    with eosdb.connect(path, clock=eosdb.ManualClock()) as long_ago:
        long_ago.producer().send("orders", b"v", deliver_at=1).result()
    page = get(reading, "/").text
    assert '<dt>Scheduled records</dt><dd class="warn">1</dd>' in page
    assert "1 scheduled record of orders should have entered the topic" in page


def test_each_record_is_shown_with_its_fate(reading: UiServer) -> None:
    page = get(reading, "/topics/orders/0").text
    rows = re.findall(r'<tr class="(\w+)" id="o(\d+)">', page)
    assert [(int(offset), fate) for fate, offset in rows] == [
        (5, "open"), (4, "marker"), (3, "committed"), (2, "marker"), (1, "aborted"), (0, "plain"),
    ]  # fmt: skip
    aborted = get(reading, "/topics/orders/0?fate=aborted").text
    assert re.findall(r'id="o(\d+)"', aborted) == ["1"]
    assert re.findall(r'id="o(\d+)"', get(reading, "/topics/orders/0?from=4").text) == ["5", "4"]
    assert re.findall(r'id="o(\d+)"', get(reading, "/topics/orders/0?time=2100-01-01").text) == []


def test_records_are_found_by_their_key(reading: UiServer) -> None:
    assert re.findall(r'id="o(\d+)"', get(reading, "/topics/orders/0?key=a").text) == ["0"]
    nothing = get(reading, "/topics/orders/1?key=a").text
    assert "no record with this key" in nothing
    assert "/topics/orders/0?fate=&amp;key=a" in nothing
    for key, partition in (("a", 0), (HARM, 1), ("nobody", 0)):
        found = get(reading, f"/topics/orders?key={quote(key)}")
        assert found.status_code == 307
        assert found.headers["location"].startswith(f"/topics/orders/{partition}?key=")
    assert (
        'id="o0"'
        in get(reading, get(reading, f"/topics/orders?key={quote(HARM)}").headers["location"]).text
    )
    assert "/topics/orders/0?key=a" in get(reading, "/topics/orders/0/0").text


def test_a_transactional_id_has_its_history_in_sentences(reading: UiServer) -> None:
    page = get(reading, "/transaction?id=settled").text
    assert "orders/0 offset 2 ABORT" in page
    assert "PrepareCommit -&gt; CompleteCommit" in page
    assert "{" not in page.partition("<main")[2]


def test_the_overview_draws_what_has_been_seen(db: eosdb.Database) -> None:
    clock = ManualClock(start_ms=1_700_000_000_000)
    watcher = Watcher(db, clock)
    assert watcher.trends() == ([], [])
    for _ in range(3):
        watcher.overview()
        clock.advance(300_000)
    events, behind = watcher.trends()
    assert [place for place, _ in events] == [0.5]
    assert [place for place, _ in behind] == [0.0, 0.5]
    assert pages.spark([(0, 1), (1, 2)], "<lag>").count("&lt;lag&gt;: at most 2") == 2


def test_a_transaction_that_holds_the_last_stable_offset_is_named(reading: UiServer) -> None:
    page = get(reading, "/").text
    assert 'class="holds"' in page
    assert "/topics/orders/0?from=5" in page
    assert "has held back readers of orders/0 from offset 5 " in page
    assert "transactions abort " in page


@pytest.mark.parametrize(
    ("address", "status", "says"),
    [
        ("/topics/nowhere", 404, "nowhere"),
        ("/topics/orders/7", 404, "no partition 7"),
        ("/topics/orders/0/99", 404, "no record at offset 99"),
        ("/topics/orders/0?from=-1", 400, "expected an offset"),
        ("/topics/orders/0?fate=lost", 400, "lost"),
        ("/topics/orders/0?time=noon", 400, "ISO 8601"),
        ("/transaction?id=nobody", 404, "nobody"),
        ("/nowhere", 404, "Not found"),
        ("/..%2fapp.py", 404, "Not found"),
        ("/%2e%2e/%2e%2e/etc/passwd", 404, "Not found"),
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(
    reading: UiServer, address: str, status: int, says: str
) -> None:
    answer = get(reading, address)
    assert answer.status_code == status
    assert says in answer.text
    assert "Traceback" not in answer.text


def test_a_file_that_is_gone_is_a_page_that_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "away"
    folder.mkdir()
    with eosdb.connect(folder / "a.db") as made:
        made.admin.create_topic("t")
    with eosdb.connect(folder / "a.db", read_only=True) as db, UiServer(db) as server:
        assert get(server, "/topics").status_code == 200
        shutil.rmtree(folder)
        answer = get(server, "/topics/t/0")
    assert answer.status_code in (200, 503)
    assert "Traceback" not in answer.text


def test_another_host_origin_or_site_is_refused(changing: UiServer) -> None:
    port = changing.port
    assert get(changing, "/", Host=f"localhost:{port}").status_code == 200
    for refused in (
        {"Host": "evil.example"},
        {"Host": f"evil.example:{port}"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{port + 1}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        answer = get(changing, "/", **refused)
        assert answer.status_code == 403, refused
        assert "orders" not in answer.text
        form = {**OPEN, "token": changing.token}
        assert post(changing, "/abort", form, **refused).status_code == 403, refused
    assert not [name for name in get(changing, "/").headers if name.startswith("access-control")]


def test_what_is_asked_by_a_program_on_this_machine_is_answered() -> None:
    assert refusal({"host": "localhost:80"}, 80) is None
    assert refusal({"host": "[::1]:8765", "origin": "http://[::1]:8765"}, 8765) is None
    assert refusal({}, 8765) is not None


def test_without_the_flag_there_is_nothing_to_change(reading: UiServer, db: eosdb.Database) -> None:
    for path in ("/abort", "/replay", "/reset"):
        assert post(reading, path, {**OPEN, "token": ""}).status_code == 404
        assert get(reading, f"{path}?{urlencode(OPEN)}").status_code == 404
    for page in ("/", "/transactions", "/dead-letters/orders.dlq"):
        assert "…</a>" not in get(reading, page).text
    assert len(db.admin.open_transactions()) == 1


def test_without_the_token_nothing_is_changed(changing: UiServer, db: eosdb.Database) -> None:
    before = Tools(db.admin).journal_position()
    for token in ("", "wrong", changing.token[:-1], changing.token + "x", "ä"):
        assert post(changing, "/abort", {**OPEN, "token": token}).status_code == 403
        form = {"topic": "orders.dlq", "token": token}
        assert post(changing, "/replay", form).status_code == 403
        form = {"id": HARMFUL_GROUP, "to": "earliest", "token": token}
        assert post(changing, "/reset", form).status_code == 403
    assert post(changing, "/abort", {**OPEN, "x": "y" * 20_000}).status_code == 413
    for page in ("/", "/abort", "/replay", "/dead-letters/orders.dlq"):
        get(changing, page)
    assert Tools(db.admin).journal_position() == before


def test_a_page_asks_before_anything_is_changed(changing: UiServer, db: eosdb.Database) -> None:
    before = Tools(db.admin).journal_position()
    asked = get(changing, f"/abort?{urlencode(OPEN)}").text
    assert "Abort the transaction of refund &lt;script&gt;" in asked
    assert "Its records become aborted" in asked
    assert '/topics/orders/0">orders-0</a></td><td>1</td>' in asked
    assert get(changing, f"/abort?{urlencode(OPEN | {'offset': '4'})}").status_code == 404
    asked = get(changing, "/replay?topic=orders.dlq").text
    assert "Send 3 dead letters of orders.dlq back" in asked
    assert '/topics/orders/1">orders-1</a></td><td>2</td>' in asked
    asked = get(changing, "/replay?topic=orders.dlq&partition=0&offset=1").text
    assert "Send 1 dead letter of orders.dlq back" in asked
    asked = get(changing, "/replay?topic=orders.dlq&partition=0&offset=9").text
    assert "<button>" not in asked
    assert Tools(db.admin).journal_position() == before


def test_with_the_token_a_transaction_is_aborted(changing: UiServer, db: eosdb.Database) -> None:
    answer = post(changing, "/abort", {**OPEN, "token": changing.token})
    assert (answer.status_code, db.admin.open_transactions()) == (200, [])
    assert "has ended with ABORT" in answer.text
    again = post(changing, "/abort", {**OPEN, "token": changing.token})
    assert again.status_code in (400, 404, 503)
    assert post(changing, "/abort", {"token": changing.token}).status_code == 400


def test_with_the_token_a_groups_positions_are_moved(
    changing: UiServer, db: eosdb.Database
) -> None:
    links = re.findall(
        r'href="(/reset[^"]+)"', get(changing, f"/group?{urlencode({'id': HARMFUL_GROUP})}").text
    )
    before = Tools(db.admin).journal_position()
    for link, skip in zip(links, ("reads again", "skips"), strict=True):
        asked = get(changing, html.unescape(link)).text
        assert "Reset the positions of billing &lt;script&gt;" in asked
        assert skip in asked
    assert get(changing, "/reset?id=nobody&to=earliest").status_code == 404
    form = {"id": HARMFUL_GROUP, "to": "sideways", "token": changing.token}
    assert post(changing, "/reset", form).status_code == 400
    assert Tools(db.admin).journal_position() == before
    assert "moved." in post(changing, "/reset", {**form, "to": "earliest"}).text
    at = db.admin.describe_group_offsets(HARMFUL_GROUP).partitions
    assert {one.committed_offset for one in at} == {0}
    post(changing, "/reset", {**form, "to": "latest"})
    at = db.admin.describe_group_offsets(HARMFUL_GROUP).partitions
    assert [one.committed_offset for one in at] == [one.log_end_offset for one in at]


def test_a_topic_says_how_many_records_wait_for_their_time(reading: UiServer, path: Path) -> None:
    with eosdb.connect(path) as other:
        due = other.clock.time_ms() + 3_600_000
        other.producer().send("orders", b"later", deliver_at=due).result()
    assert "1 scheduled record; the first is due at " in get(reading, "/topics/orders").text


def test_with_the_token_dead_letters_are_sent_back_once(
    changing: UiServer, db: eosdb.Database
) -> None:
    one = {"topic": "orders.dlq", "partition": "0", "offset": "1", "token": changing.token}
    done = post(changing, "/replay", one).text
    assert "1 dead letter of orders.dlq sent back" in done
    assert '<a href="/dead-letters/orders.dlq">Back</a>' in done
    every = {"topic": "orders.dlq", "token": changing.token}
    assert "2 dead letters of orders.dlq sent back" in post(changing, "/replay", every).text
    assert "0 dead letters" in post(changing, "/replay", every).text
    assert [one.waiting for one in db.admin.overview().dead_letters] in ([0], [])
    ends = db.admin.partition_offsets()
    assert ends[TopicPartition("orders", 1)].log_end_offset > 2


def test_a_page_that_is_open_holds_no_snapshot(reading: UiServer, path: Path) -> None:
    url = f"http://127.0.0.1:{reading.port}"
    with httpx.stream("GET", f"{url}/live", timeout=60) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: change"
        for page in PAGES:
            get(reading, page)
        with eosdb.connect(path, durability="off") as writer:
            with writer.producer() as producer:
                producer.send("orders", b"more", partition=0)
            assert writer.info()["wal_held_by"] == ""
        while next(lines) != "event: change":
            pass


def test_an_open_page_names_a_program_that_keeps_the_write_lock(
    reading: UiServer, path: Path
) -> None:
    url = f"http://127.0.0.1:{reading.port}"
    with httpx.stream("GET", f"{url}/live", timeout=60) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: change"
        assert "The write lock of" not in get(reading, "/").text
        with held_by(SQLITE, path):
            while next(lines) != "event: change":
                pass
            assert re.search(
                r"The write lock of .* is held by process \d+ \(", get(reading, "/").text
            )


def test_many_browsers_share_one_look(db: eosdb.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    overview = db.admin.overview

    def counted() -> object:
        nonlocal looks
        looks += 1
        return overview()

    monkeypatch.setattr(db.admin, "overview", counted)
    with UiServer(db) as server:
        began = db.clock.monotonic_ms()
        for _ in range(30):
            get(server, "/")
        assert looks <= 2 + (db.clock.monotonic_ms() - began) / 1_000


def test_it_stops_at_once_with_streams_open(db: eosdb.Database) -> None:
    with UiServer(db) as server:
        stream = httpx.stream("GET", f"http://127.0.0.1:{server.port}/live", timeout=60)
        assert next(stream.__enter__().iter_lines()) == "event: change"
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", server.port))


def test_a_connection_that_still_waits_for_its_answer_is_closed(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, released = threading.Event(), threading.Event()
    overview = db.admin.overview

    def slow() -> object:
        asked.set()
        released.wait(60)
        return overview()

    monkeypatch.setattr(db.admin, "overview", slow)
    with socket.socket() as client:
        client.settimeout(60)
        with UiServer(db) as server:
            client.connect(("127.0.0.1", server.port))
            client.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
            assert asked.wait(60)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
        released.set()


def test_a_port_that_is_taken_is_named(db: eosdb.Database, reading: UiServer) -> None:
    with pytest.raises(eosdb.ListenError, match=f"127.0.0.1:{reading.port}"):
        UiServer(db, reading.port)


def test_access_control_holds_for_the_page(path: Path) -> None:
    with eosdb.connect(path) as writer:
        writer.admin.create_acls([eosdb.Acl("User:somebody", "all", "topic", "orders")])
    with eosdb.connect(path, read_only=True) as db, UiServer(db) as server:
        assert "taken back" not in get(server, "/topics/orders/0").text
        assert get(server, "/topics/orders/0").status_code == 403
        assert '"/topics/orders"' not in get(server, "/topics").text
        assert get(server, "/topics/orders/timeline").status_code == 403


def test_nothing_is_left_beside_a_file_that_was_only_read(path: Path) -> None:
    sqlite3.connect(path).close()
    with eosdb.connect(path, read_only=True) as db, UiServer(db) as server:
        get(server, "/")
    assert not os.path.exists(f"{path}-journal")


def test_the_page_and_top_show_the_size_of_a_file_alike(reading: UiServer, path: Path) -> None:
    file = re.search(r"<dt>File</dt><dd>(.*?)</dd>", get(reading, "/").text)
    assert file is not None
    shown = CliRunner().invoke(main, ["--db", str(path), "top", "-b", "-n", "1"]).stdout
    assert f"file {file[1]}  " in shown or f"file {file[1]} (" in shown
