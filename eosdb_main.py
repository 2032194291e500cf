"""The `eosdb` command begins here, outside the package: from its first moment on Ctrl-C ends it without a
traceback, also while Python imports the package."""

import os
import signal
from typing import NoReturn


def run() -> None:
    """Run the command that the arguments name, and exit."""
    try:
        usual = signal.getsignal(signal.SIGINT)
        if usual is signal.default_int_handler:
            signal.signal(signal.SIGINT, _leave)
        from eosdb.cli.__main__ import run as run_command

        signal.signal(signal.SIGINT, usual)
        run_command()
    except KeyboardInterrupt:
        _leave()


def _leave(*_: object) -> NoReturn:
    os._exit(130)
