"""What a service manager hears of a server that it has started."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from eosdb.cli.commands.kafka.serve import ready_for_service_manager


@pytest.mark.parametrize("name", ["{folder}/notify", "@eosdb-test-{folder}"])
def test_it_hears_when_the_process_is_ready_and_when_it_stops(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = name.format(folder=tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0", 1))
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        with ready_for_service_manager():
            assert manager.recv(100) == b"READY=1"
        assert manager.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("name", ["", "relative", "/no/such/socket"])
def test_nobody_need_listen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    with ready_for_service_manager():
        pass
