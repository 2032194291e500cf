"""A real server that speaks S3 (moto), over links that hold and links that break."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb.integrations import publishing
from tests.integrations.publishing.conftest import Device, read
from tests.integrations.publishing.links import flaky_link
from tests.programs import ended

ENOUGH_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """The port of the server, which has a bucket `bucket`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + ENOUGH_S
        while True:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
            with contextlib.suppress(OSError), urllib.request.urlopen(request):
                break
            assert process.poll() is None
            assert time.monotonic() < until
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a device is configured: by the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "device")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


def at(port: int, **more: object) -> dict[str, object]:
    """The options that lead to the server instead of Amazon's."""
    return {"endpoint_url": f"http://127.0.0.1:{port}", **more}


@pytest.mark.process
@pytest.mark.usefixtures("settings")
def test_published_increments_are_fetched_from_s3(device: Device, server: int) -> None:
    url, options = "s3://bucket/fleet", at(server)
    first = device.db.publish_copy(url, storage_options=options)
    device.append(1)
    second = device.db.publish_copy(url, storage_options=options)
    assert first is not None
    assert second is not None
    assert second.sent_bytes < 1_500_000 < first.sent_bytes
    path = publishing.fetch(url, cache=device.cache, storage_options=options)
    assert read(Path(path)) == 26
    old = publishing.fetch(
        second.url, snapshot=first.snapshot, cache=device.cache, storage_options=options
    )
    assert read(Path(old)) == 25
    with pytest.raises(eosdb.StorageError, match="no such bucket"):
        device.db.publish_copy("s3://another/fleet", storage_options=options)


@pytest.mark.slow
@pytest.mark.usefixtures("settings")
def test_over_a_link_that_breaks_the_next_attempt_goes_on_where_it_was(
    device: Device, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second connection breaks somewhere, and the link is down before the last chunk."""
    monkeypatch.setattr("eosdb.integrations.publishing.storage._THREADS", 1)
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    device.append(45)
    url = "s3://bucket/far"
    with flaky_link(server, seed=1, most=4_000_000, total=9_000_000) as link:
        options = at(link.port, config_kwargs={"retries": {"max_attempts": 0}})
        with pytest.raises(eosdb.StorageError, match="call again to continue") as failed:
            device.db.publish_copy(url, storage_options=options)
        assert "\n" not in str(failed.value)
        link.total = 10**12
        broken = link.broken
        done = device.db.publish_copy(url, storage_options=options)
        assert done is not None
        assert done.sent_bytes < done.size - 4_000_000, "what had arrived was not sent again"
        path = publishing.fetch(url, cache=device.cache, storage_options=options)
        assert link.broken > broken
    assert read(Path(path)) == 70


@pytest.mark.process
@pytest.mark.usefixtures("settings")
def test_a_server_that_is_not_there_is_one_line_of_the_command(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = ended(
        [sys.executable, "-m", "eosdb.cli", "--db", device.db.path, "publish", "s3://bucket/fleet"],
        env={
            **os.environ,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "FSSPEC_S3_CONFIG_KWARGS": '{"retries": {"max_attempts": 0}}',
        },
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: StorageError: s3://bucket/fleet/")
    assert done.stderr.count("\n") == 1
