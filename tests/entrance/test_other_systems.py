"""Where eosdb does not run, its first use says so in one sentence."""

from __future__ import annotations

import sys

import pytest

from tests.programs import ended

pytestmark = [pytest.mark.process, pytest.mark.real_start]

_IMPORT = """
import sys
sys.platform, sys.modules["fcntl"] = sys.argv[1], None
try:
    from eosdb import connect
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize("system", ["win32", "freebsd14"])
def test_another_system_is_refused_by_name(system: str) -> None:
    found = ended([sys.executable, "-c", _IMPORT, system], check=True)
    assert found.stdout.startswith(f"eosdb runs on Linux and macOS, and this is {system}")
    assert "Windows: WSL 2" in found.stdout
