# Every target sets up what it needs; on a fresh Debian machine `make demo` and `make test` just work.
PYTHON := .venv/bin/python
SETUP := .venv/.ready

.PHONY: demo test lint bench docs simulate clean

demo: $(SETUP)
	$(PYTHON) demo/flights.py

test: $(SETUP)
	$(PYTHON) -m pytest

lint: $(SETUP)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

bench: $(SETUP)
	$(PYTHON) benchmarks/run.py
	$(PYTHON) benchmarks/groups.py
	$(PYTHON) benchmarks/spark.py

simulate: $(SETUP)
	$(PYTHON) -m eosdb.cli simulate --seeds 1000 --steps 2000 --jobs 2

docs: $(SETUP)
	$(PYTHON) docs/make_cli.py
	$(PYTHON) docs/make_datasette.py
	$(PYTHON) -m pytest tests/docs

$(SETUP): pyproject.toml scripts/setup.sh
	scripts/setup.sh

clean:
	rm -rf .venv build dist *.egg-info demo-output
