"""Which process a broker is, and what it has cost, is found by its address."""

from __future__ import annotations

import os
import socket
from time import process_time

from benchmarks import kafka


def test_the_process_that_listens_is_found_by_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert kafka.Process.of(address) == kafka.Process(os.getpid())
    assert kafka.Process.of(address) is None, "nobody listens there any more"


def test_a_broker_elsewhere_has_no_process_here_though_its_port_is_open_here_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        # An address for documentation, which no machine has.
        assert kafka.Process.of(f"192.0.2.1:{server.getsockname()[1]}") is None


def test_its_cpu_time_is_that_of_the_whole_process() -> None:
    process, before = kafka.Process(os.getpid()), process_time()
    found = process.cpu_s()
    # In hundredths of a second.
    assert before - 0.1 <= found <= process_time() + 0.1
