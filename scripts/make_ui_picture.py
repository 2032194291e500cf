"""Takes the pictures of docs/ui.md and the README: `python -m scripts.make_ui_picture`."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import eosdb
from eosdb.integrations.ui.server import UiServer
from eosdb.model.clock import ManualClock, SystemClock

IMAGES = Path(__file__).parent.parent / "docs" / "images"
_AGO_MS = 420_000


def make_shop(path: Path) -> None:
    """A shop at work: tills commit and abort, one transaction is open, some payments fail."""
    chance, clock = random.Random(7), ManualClock(SystemClock().time_ms() - _AGO_MS)

    def bill(record: eosdb.ConsumerRecord) -> bytes:
        if record.offset % 19 == 0:
            raise ValueError("no such customer")
        return bytes(record.value)

    with eosdb.connect(path, clock=clock, durability="off") as db:
        for topic in ("orders", "payments", "payments.dlq"):
            db.admin.create_topic(topic)
        workers = [
            db.producer(transactional_id=f"till-{i}", transaction_timeout_ms=900_000)
            for i in range(1, 5)
        ]
        for worker in workers:
            worker.init_transactions()
        open_now: dict[int, int] = {}
        for number in range(170):
            clock.advance(chance.randrange(200, 4_000))
            till = chance.randrange(4)
            if till not in open_now:
                workers[till].begin_transaction()
                open_now[till] = 0
            for _ in range(chance.randrange(1, 4)):
                workers[till].send("orders", f'{{"order": {number}, "till": {till + 1}}}'.encode())
            workers[till].flush()
            open_now[till] += 1
            if till == 3 and number > 110:
                continue
            if open_now[till] > chance.randrange(1, 6):
                ends_well = chance.random() > 0.2
                workers[till].commit_transaction() if ends_well else workers[
                    till
                ].abort_transaction()
                del open_now[till]
        db.abandon()
    with eosdb.connect(path, durability="off") as db:
        db.processor(
            "orders", bill, "payments", group_id="billing", dead_letter_topic="payments.dlq", max_attempts=1
        ).run(until_idle_ms=0)  # fmt: skip


def main() -> None:
    """Write the pictures into docs/images."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "shop.db"
        make_shop(path)
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        with eosdb.connect(path, read_only=True) as db, UiServer(db) as server:
            for name, address, height in (
                ("timeline", "topics/orders/timeline", 490),
                ("overview", "", 640),
            ):
                page = chromium.new_page(viewport={"width": 1200, "height": height})
                page.goto(server.url + address)
                page.wait_for_selector("#state.on")
                page.screenshot(path=IMAGES / f"ui-{name}.png")
        chromium.close()


if __name__ == "__main__":
    main()
