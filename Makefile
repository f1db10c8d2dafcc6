PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What running the examples needs, and no more: it takes seconds, not minutes.
RUNS := $(VENV)/.runs

.PHONY: help install run test test-long test-field test-trainers test-agents test-ray attack coverage check format bench bench-quick bench-pairs bench-cluster bench-cores bench-peers age bench-rollouts bench-adapters nodes profile soak fuzz idle cost killed records screenshots clean bench-sandbox browser proxies prometheus sandbox docs test-docs test-pythons package

help: ## what there is to do
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP) ## make .venv with all packages that testing and checking need

$(RUNS): pyproject.toml
	@echo "Installing ors and what it needs to run into $(VENV): 14 packages, 34 MB."
	@scripts/environment $(PYTHON) $(VENV) --no-compile --editable .
	@touch $@

# Compiled here, not by the tests, for whom a warning about the syntax of some package would be an error.
$(STAMP): pyproject.toml
	@echo "Installing the developer's packages into $(VENV), for tests and checks: about 130 packages, 900 MB."
	@scripts/environment $(PYTHON) $(VENV) --editable '.[dev]'
	@touch $(RUNS) $@

browser proxies prometheus sandbox:
	@scripts/programs $@

run: $(RUNS) ## serve the examples on http://127.0.0.1:8080; PORT=8081 takes another port
	@$(BIN)/python -m examples --port $(or $(PORT),8080)

FIELD := tests/compat tests/conformance/test_field.py tests/libraries/test_field.py
RAY := tests/cluster/ray
TRAINERS := tests/adapters tests/trainers
AGENTS := tests/agents
SITE := tests/site/test_browser.py
CROWDS := tests/cluster/test_crowds.py tests/interaction/test_many_sessions.py

# Each has a target of its own.
ELSEWHERE := $(FIELD) $(TRAINERS) $(AGENTS) $(RAY) $(SITE) tests/attack

test: install browser proxies sandbox ## run all tests but those of the next targets: under five minutes
	$(BIN)/python -m pytest -m "not long" $(foreach path,$(ELSEWHERE),--ignore $(path))

test-long: install browser proxies sandbox ## the tests that take over two seconds each: about eight minutes
	$(BIN)/python -m pytest -m long $(foreach path,$(ELSEWHERE) $(CROWDS),--ignore $(path))

test-pythons: browser proxies sandbox ## the tests of test under Python 3.11 to 3.14, as far as they are here: five minutes each
	scripts/pythons -m "not long" $(foreach path,$(ELSEWHERE),--ignore $(path))

test-field: install prometheus ## the tests beside the field's packages, in environments of their own: about three minutes
	$(BIN)/python -m pytest $(FIELD)

test-trainers: install ## the adapters in the loops of their trainers, on a CPU: about seven minutes
	$(BIN)/python -m pytest -n 2 $(TRAINERS)

test-agents: install ## coding agents from npm play episodes, with a scripted model: about three minutes
	$(BIN)/python -m pytest -n 2 -rs $(AGENTS)

test-ray: install ## the tests on a real Ray cluster of three nodes: about two minutes
	$(BIN)/python -m pytest -n 0 $(RAY)

attack: install ## the attacks and crowds in their long form, and a report of them: about three minutes
	ORS_ATTACK=1 $(BIN)/python -m pytest -n 2 tests/attack $(CROWDS)

TRACED := $(BIN)/coverage run -m pytest -m "not untraced"
# Apart: `ors test` installs audit hooks, which stay. With one, CPython 3.11 may fail to trace a thread that starts.
HOOKED := tests/quality

coverage: install browser proxies sandbox ## the tests of test, test-long and test-ray, and whether they run enough of src/ors: about twenty minutes
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/python -m pytest -m untraced $(foreach path,$(ELSEWHERE) $(CROWDS),--ignore $(path))
	$(TRACED) $(HOOKED)
	$(TRACED) $(foreach path,$(ELSEWHERE) $(CROWDS) $(HOOKED),--ignore $(path))
	$(TRACED) -n 0 $(RAY)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet --directory build/coverage
	$(BIN)/coverage json --quiet -o build/coverage/report.json
	$(BIN)/python -m scripts.coverage_gate build/coverage/report.json

check: install ## formatting, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@scripts/page-tools check

format: install ## format the code and apply the fixes that ruff can make
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@scripts/page-tools format

package: install ## a wheel and an sdist in dist, as an index would take them
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*

bench: install ## speed, beside the reference SDK and the floor: about ten minutes
	$(BIN)/python -m bench

bench-quick: install ## the same with fewer and shorter rounds: under a minute
	$(BIN)/python -m bench --quick

bench-pairs: install ## this tree beside another revision, in turns: BASE=REVISION; about three minutes
	$(BIN)/python -m bench.pairs $(or $(BASE),HEAD)

bench-cluster: install ## what forwarding costs, and what several workers bring: about four minutes
	$(BIN)/python -m bench.cluster

bench-cores: install ## how workers scale over cores, where there are more than four: about two minutes
	$(BIN)/python -m bench.cores

bench-peers: install ## this package beside its peers, each with its own server and client: about five minutes
	$(BIN)/python -m bench.peers

age: install ## whether a server ages: a million short episodes, in about five minutes
	$(BIN)/python -m bench.age

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

fuzz: install ## a million malformed or hostile requests
	$(BIN)/python -m bench.fuzz

idle: install ## ten thousand idle sessions: what they cost, and how fast a call still is
	$(BIN)/python -m bench.idle

cost: install ## what metrics, the log and API keys cost a call
	$(BIN)/python -m bench.cost

killed: install ## a server killed under a hundred calls: how soon its clients know
	$(BIN)/python -m bench.killed

records: install ## ten thousand recorded episodes: memory, append, and how long they take to sum up
	$(BIN)/python -m bench.records

bench-sandbox: install sandbox ## sandboxes: opening, running, closing, three hundred at once, a soak: about three minutes
	$(BIN)/python -m bench.sandbox

screenshots: install browser sandbox ## pictures of every view of the inspector, in build/screenshots; three go to docs
	$(BIN)/python -m scripts.screenshots --docs docs

DOCS := $(VENV)/.docs

$(DOCS): $(STAMP)
	@echo "installing the generator of the documentation site"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

docs: $(DOCS) ## the documentation as a site, in build/site: under a minute
	$(BIN)/python -m scripts.site

test-docs: docs browser ## the site in a real browser: pages, links, search: under a minute
	$(BIN)/python -m pytest -n 0 $(SITE)

clean: ## remove everything that can be made again
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests bench examples scripts -name __pycache__ -prune -exec rm -rf {} +
