"""The program: `eosdb`, `python -m eosdb` and `python -m eosdb.cli`.

Installs the handler of Ctrl-C before anything else is imported."""

from __future__ import annotations

from .stopping import leave, leaving_on_interrupt


def run() -> None:
    """Run the command that the arguments name, and exit."""
    leaving_on_interrupt()
    from .main import main

    try:
        try:
            main(prog_name="eosdb")
        finally:
            leaving_on_interrupt()
    except KeyboardInterrupt:
        leave()


if __name__ == "__main__":
    run()
