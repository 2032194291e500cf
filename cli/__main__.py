"""`python -m eosdb.cli` is `python -m eosdb`."""

import runpy

runpy.run_module("eosdb", run_name="__main__")
