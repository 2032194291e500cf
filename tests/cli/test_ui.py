"""`eosdb ui` as its users start and stop it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import eosdb
from tests.programs import ended

pytestmark = pytest.mark.process

PATIENCE_S = 60


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_ends_in_good_order(db_path: Path, stop: signal.Signals) -> None:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("orders")
    command = [sys.executable, "-m", "eosdb.cli", "ui", str(db_path), "--port", "0"]
    with subprocess.Popen([*command, "--allow-changes"], stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        line = page.stdout.readline()
        address = next(word for word in line.split() if word.startswith("http"))
        assert "#token=" in address
        assert "orders" in httpx.get(address.partition("#")[0] + "topics", timeout=PATIENCE_S).text
        page.send_signal(stop)
        assert page.wait(PATIENCE_S) == 0
        assert page.stdout.read() == ""


@pytest.mark.real_start
def test_what_it_cannot_do_is_said_in_one_line(db_path: Path) -> None:
    eosdb.connect(db_path).close()
    without = (
        "import sys; sys.modules['starlette'] = None\n"
        "from eosdb.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )

    def refused(*arguments: str) -> str:
        done = ended([sys.executable, *arguments], timeout=PATIENCE_S)
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "the page needs the extra 'ui': pip install " in refused(
        "-c", without, "ui", str(db_path)
    )
    cli = ("-m", "eosdb.cli")
    assert "--read-only" in refused(*cli, "--read-only", "ui", str(db_path), "--allow-changes")
    assert "does not exist" in refused(*cli, "ui", str(db_path.with_name("no.db")))
