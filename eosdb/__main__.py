"""The program: `eosdb`, and `python -m eosdb`.

Ctrl-C ends it without a traceback, also while Python imports the rest of the package (decisions/0018).
"""

import os


def run() -> None:
    """Run the command that the arguments name, and exit."""
    try:
        import signal

        usual = signal.getsignal(signal.SIGINT)
        if usual is signal.default_int_handler:
            signal.signal(signal.SIGINT, _leave)
        from eosdb.cli.stopping import leaving_on_interrupt

        signal.signal(signal.SIGINT, usual)
        leaving_on_interrupt()
        from eosdb.cli.main import main

        try:
            main(prog_name="eosdb")
        finally:
            leaving_on_interrupt()
    except KeyboardInterrupt:
        _leave()


def _leave(*_: object) -> None:
    os._exit(130)


if __name__ == "__main__":
    run()
