"""`python -m eosdb` is the `eosdb` command."""

from eosdb.cli.__main__ import run

run()
