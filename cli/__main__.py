"""`python -m eosdb.cli` is the `eosdb` command."""

from .main import main

main(prog_name="eosdb")
