PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install run test test-field test-trainers test-ray attack coverage check format bench bench-quick bench-cluster bench-rollouts bench-adapters nodes profile soak fuzz idle cost killed records screenshots clean bench-sandbox

help: ## what there is to do
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP) ## make .venv with everything that running, testing and checking need

$(STAMP): pyproject.toml scripts/browser scripts/proxies scripts/bubblewrap
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@scripts/browser
	@scripts/proxies
	@scripts/bubblewrap
	@touch $@

run: install ## serve the example environments on http://127.0.0.1:8080
	$(BIN)/python -m examples

FIELD := tests/compat tests/conformance/test_field.py
RAY := tests/cluster/ray
TRAINERS := tests/adapters tests/trainers
# Counts the functions that run for a call, which a tracer would add to.
COUNTING := tests/test_bench_smoke.py

test: install ## run all tests but those beside other packages and on Ray
	$(BIN)/python -m pytest $(foreach path,$(FIELD) $(TRAINERS) $(RAY),--ignore $(path))

test-field: install ## the tests beside the field's packages, each in an environment of its own: about two minutes
	$(BIN)/python -m pytest $(FIELD)

test-trainers: install ## the adapters in the loops of their trainers, on a CPU: about four minutes
	$(BIN)/python -m pytest -n 2 $(TRAINERS)

test-ray: install ## the tests on a real Ray cluster of three nodes: about two minutes
	$(BIN)/python -m pytest -n 0 $(RAY)

CROWDS := tests/cluster/test_crowds.py tests/interaction/test_many_sessions.py

attack: install ## the attacks and crowds in their long form, and a report of them: under three minutes
	ORS_ATTACK=1 $(BIN)/python -m pytest -n 2 tests/attack $(CROWDS)

coverage: install ## the tests of test and test-ray, and whether they run enough of src/ors: under twenty minutes
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/python -m pytest $(COUNTING)
	$(BIN)/coverage run -m pytest $(foreach path,$(FIELD) $(TRAINERS) $(RAY) $(COUNTING),--ignore $(path))
	$(BIN)/coverage run -m pytest -n 0 $(RAY)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet --directory build/coverage
	$(BIN)/coverage json --quiet -o build/coverage/report.json
	$(BIN)/python -m scripts.coverage_gate build/coverage/report.json

check: install ## formatting, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## format the code and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## speed, beside the reference SDK and the floor: about ten minutes
	$(BIN)/python -m bench

bench-quick: install ## the same with fewer and shorter rounds: under a minute
	$(BIN)/python -m bench --quick

bench-cluster: install ## what forwarding costs, and what several workers bring: about four minutes
	$(BIN)/python -m bench.cluster

bench-rollouts: install ## what the driver of rollouts costs beside the bare client: about two minutes
	$(BIN)/python -m bench.rollouts

bench-adapters: install ## what the adapters of trainers cost beside the driver: about two minutes
	PYTHONPATH=src $$($(BIN)/python -c 'from tests.support.side_venvs import TRAINERS; print(TRAINERS.python())') -W ignore -m bench.adapters

nodes: install ## a Ray cluster whose parts are killed and frozen: who sees it, and how soon: about a minute
	$(BIN)/python -m bench.nodes

profile: install ## where the microseconds of a call go
	$(BIN)/python -m bench.profile

soak: install ## ten minutes of a thousand clients that misbehave; SECONDS=60 shortens it
	$(BIN)/python -m bench.soak --seconds $(or $(SECONDS),600)

fuzz: install ## a million requests that nobody should send
	$(BIN)/python -m bench.fuzz

idle: install ## ten thousand idle sessions: what they cost, and how fast a call still is
	$(BIN)/python -m bench.idle

cost: install ## what metrics, the log and API keys cost a call
	$(BIN)/python -m bench.cost

killed: install ## a server killed under a hundred calls: how soon its clients know
	$(BIN)/python -m bench.killed

records: install ## ten thousand recorded episodes: memory, append, and how long they take to sum up
	$(BIN)/python -m bench.records

bench-sandbox: install ## sandboxes: opening, running, closing, three hundred at once, a soak: about three minutes
	$(BIN)/python -m bench.sandbox

screenshots: install ## pictures of every view of the inspector, in build/screenshots; three go to docs
	$(BIN)/python -m scripts.screenshots --docs docs

clean: ## remove everything that can be made again
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests bench examples scripts -name __pycache__ -prune -exec rm -rf {} +
