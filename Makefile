# Every target sets up what it needs; on a fresh Debian machine `make demo` and `make test` just work.
PYTHON := .venv/bin/python
SETUP := .venv/.ready
PEERS := .venv/.peers

.PHONY: demo test lint bench docs simulate clean

demo: $(SETUP)
	$(PYTHON) demo/flights.py

test: $(SETUP)
	$(PYTHON) -m pytest

lint: $(SETUP)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

# BENCH="--large-file PATH" and the like reach the benchmark: `make bench BENCH=--help` tells what there is.
bench: $(PEERS)
	$(PYTHON) -m benchmarks $(BENCH)
	$(PYTHON) -m benchmarks.groups
	$(PYTHON) -m benchmarks.spark

simulate: $(SETUP)
	$(PYTHON) -m eosdb.cli simulate --seeds 1000 --steps 2000 --jobs 2

docs: $(SETUP)
	$(PYTHON) docs/make_cli.py
	$(PYTHON) docs/make_datasette.py
	$(PYTHON) -m pytest tests/docs

$(SETUP): pyproject.toml scripts/setup.sh
	scripts/setup.sh

$(PEERS): $(SETUP)
	scripts/setup_peers.sh

clean:
	rm -rf .venv build dist *.egg-info demo-output
