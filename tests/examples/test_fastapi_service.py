"""The FastAPI service under fifty clients, by its own command; also with workers that are killed."""

from __future__ import annotations

import http.client
import json
import os
import signal
from pathlib import Path
from urllib.parse import quote

import pytest

import eosdb
from tests.concurrency.worker import threads
from tests.tidy.tree import ROOT
from tests.waiting import eventually
from tests.web_server import CLIENTS, PATIENCE_S, Server, commands_of, running

pytestmark = pytest.mark.process

EACH = 4
EXAMPLES = ROOT / "examples"
(COMMAND,) = commands_of(EXAMPLES / "fastapi_service.py")


class Client:
    """Repeats a request until it is answered."""

    def __init__(self, server: Server) -> None:
        self.port = server.port
        self.repeated = 0

    def ask(self, method: str, path: str) -> tuple[int, dict[str, object]]:
        tries = 0

        def is_answered() -> bool:
            nonlocal tries
            tries += 1
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
            try:
                connection.request(method, path)
                got = connection.getresponse()
                answer[:] = [(got.status, json.loads(got.read()))]
            except (OSError, http.client.HTTPException):
                return False
            finally:
                connection.close()
            return answer[0][0] != 503

        answer: list[tuple[int, dict[str, object]]] = []
        eventually(is_answered)
        self.repeated += tries - 1
        return answer[0]


@pytest.mark.parametrize("kills", [0, 3])
def test_every_order_that_was_answered_is_stored_once(tmp_path: Path, kills: int) -> None:
    answered: dict[str, dict[str, object]] = {}
    refused: list[str] = []
    with running(COMMAND, tmp_path, EXAMPLES) as server:

        def order(number: int) -> None:
            if number == CLIENTS:
                for kill in range(kills):
                    due = 30 * (kill + 1)
                    eventually(lambda due=due: len(answered) > due)  # type: ignore[misc]
                    workers = server.workers()
                    if workers:
                        os.kill(workers[-1], signal.SIGKILL)
                return
            client = Client(server)
            for i in range(EACH):
                order_id = f"{number}-{i}"
                pieces = 0 if i == 2 else i + 1
                path = f"/orders/{order_id}?what={quote('green tea')}&pieces={pieces}"
                status, answer = client.ask("PUT", path)
                if status == 200:
                    answered[order_id] = answer
                    assert client.ask("GET", f"/orders/{order_id}") == (
                        200,
                        {"what": "green tea", "pieces": pieces},
                    )
                else:
                    assert status == 422
                    assert client.ask("GET", f"/orders/{order_id}")[0] == 404
                    refused.append(order_id)
            assert client.repeated == 0 or kills

        threads(CLIENTS + 1, order)
    assert (len(answered), len(refused)) == (3 * CLIENTS, CLIENTS)
    with eosdb.connect(tmp_path / "shop.db") as db:
        rows = [order_id for (order_id,) in db.query("SELECT id FROM orders").rows]
        records = db.query(
            'SELECT CAST(key AS TEXT), "partition", "offset" FROM committed_records'
        ).rows
        places = {key: {"partition": at, "offset": offset} for key, at, offset in records}
        assert len(rows) == len(answered)
        assert db.query("SELECT count(*) FROM committed_records").rows.__next__() == (len(rows),)
        assert set(rows) == set(answered)
        assert places == answered
        assert db.verify().ok
