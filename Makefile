# Every target sets up what it needs; on a fresh Debian machine `make demo` and `make test` just work.
PYTHON := .venv/bin/python
SETUP := .venv/.ready
PEERS := .venv/.peers

.PHONY: demo test durations test-portable test-fast chaos fuzz gauntlet judges relay move lakehouse lint bench docs simulate explore release matrix site copies later years clean

demo: $(SETUP)
	@$(PYTHON) demo/flights.py

# TESTS="tests/log" tests a room, TESTS=--no-skips fails what is skipped; build/test.xml has the time of each test.
TESTS ?=
# Two more than the cores of a small machine, which tests that wait leave idle.
WORKERS ?= 4
test: $(SETUP)
	$(PYTHON) -m pytest -n $(WORKERS) --junitxml build/test.xml $(TESTS)

# What the suite costs, on an otherwise idle machine (CONTRIBUTING.md).
durations: test
	$(PYTHON) -m tests.durations build/test.xml

# The same on the road that macOS takes, too (docs/support.md).
test-portable: $(SETUP)
	EOSDB_PORTABLE=1 $(PYTHON) -m pytest -n $(WORKERS) --junitxml build/test-portable.xml $(TESTS)

# What has no mark (tests/marks.py), and so seldom waits; the rest is left to `make test`.
test-fast: $(SETUP)
	$(PYTHON) -m pytest -n logical --junitxml build/test-fast.xml --fast

# Power cuts, failing syncs, interrupts and forks at length; SEEDS=150 takes about half an hour.
SEEDS ?= 150
chaos: $(SETUP)
	$(PYTHON) -m pytest tests/chaos --seeds $(SEEDS) --timeout 3600 -o hanging_timeout=3700

# Frames and batches of every kind at a server, for so many minutes; what was found names its seed.
MINUTES ?= 10
SEED ?= 0
fuzz: $(SETUP)
	$(PYTHON) -m tests.trials.fuzz $(MINUTES) $(SEED)

# Kafka's and other people's own programs against `eosdb serve` (tests/trials/README.md); fetches what they are made of.
# JUDGES="streams copier" asks some; exit status 1: one failed, 2: one could not be had here.
JUDGES ?=
judges: $(SETUP)
	$(PYTHON) -m tests.trials.judges $(JUDGES)

# Every actor under every fault, one judge (docs/proof.md); a session that fails tells the command that repeats it.
ACTOR ?=
FAULT ?=
gauntlet: $(SETUP)
	$(PYTHON) -m tests.trials.hunts.gauntlet --minutes $(MINUTES) --seed $(SEED) --actor "$(ACTOR)" --fault "$(FAULT)"

# Relays, with both their sides killed, stopped and locked, and every record compared; files that are moved to a cluster, and
# every group's next records compared. EOSDB_BENCH_KAFKA=host:port takes a real broker (tests/trials/hunts/actors/cluster.py).
relay: $(SETUP)
	$(PYTHON) -m tests.trials.hunts.gauntlet --actor relay-file,relay-kafka,relay-back --minutes $(MINUTES) --seed $(SEED)

MOVE ?=
move: $(SETUP)
	$(if $(MOVE),EOSDB_BENCH_KAFKA=$(MOVE)) $(PYTHON) -m tests.trials.hunts.gauntlet --actor move --minutes $(MINUTES) --seed $(SEED)

# Two years of a shop with the clock moved (docs/proof.md); YEARS="--days 60 --per-day 100" is shorter.
YEARS ?=
years: $(SETUP)
	$(PYTHON) -m tests.trials.hunts.years $(YEARS)

# Scheduled and postponed records: deliverers and processors killed in pairs, with a clock that jumps (LATER="--kills 200").
LATER ?=
later: $(SETUP)
	$(PYTHON) -m tests.trials.hunts.later $(LATER)

# Litestream beside a writer, both killed, and every restored copy compared (COPIES="--rounds 10"); EOSDB_LITESTREAM names it.
COPIES ?=
copies: $(SETUP)
	$(PYTHON) -m tests.trials.hunts.copies $(COPIES)

# Delta's and Iceberg's Spark readers on what `eosdb export` wrote, and the recipes of docs/lakehouse.md with the driver
# killed; fetches Spark in the versions that these have jars for. Then 2,000 files into one Delta table, with 30 kills.
lakehouse: $(SETUP)
	$(PYTHON) -m tests.trials.lakehouse.with_spark
	$(PYTHON) -m tests.integrations.lakehouse.fleet delta

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
	$(PYTHON) -m pytest tests/simulation --seeds 4
	$(PYTHON) -m tests.simulation --seeds 1000 --steps 2000 --jobs 2

# Every state of small systems on the real broker (docs/proof.md); a violation is printed as a program of its own.
# EXPLORE="'one producer' --seconds 60" explores one scope, for at most a minute.
EXPLORE ?=
explore: $(SETUP)
	$(PYTHON) -m tests.explore $(EXPLORE)

docs: $(SETUP)
	$(PYTHON) -m scripts.make_notices
	$(PYTHON) -m scripts.make_datasette
	$(PYTHON) -m scripts.make_pictures
	$(PYTHON) -m scripts.make_trial
	$(PYTHON) -m pytest tests/docs

# Builds and tries what is published (docs/internals/releasing.md); publishes nothing.
release: $(SETUP)
	$(PYTHON) -m scripts.release

# The core's tests with the Pythons and SQLites found here (docs/support.md). SQLITES="folder …" names folders that each
# hold a libsqlite3.so.0.
SQLITES ?=
matrix: $(SETUP)
	$(PYTHON) -m scripts.matrix $(SQLITES)

# The documentation as a site in build/site, to be opened there or put on any web server. A broken link fails it.
site: $(SETUP)
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

$(SETUP): pyproject.toml setup.py eosdb/native/_rows.c eosdb/native/_batches.h scripts/setup.sh
	scripts/setup.sh

$(PEERS): $(SETUP)
	scripts/setup_peers.sh

clean:
	rm -rf .venv .matrix build dist *.egg-info demo-output
