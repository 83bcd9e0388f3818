# Needs Python 3.11 with pip, and nothing else; the tests take a real broker too where Java and Maven are there.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
STAMP := .venv/.installed
TYPED := $(wildcard workers schemas migrations deploy/checks tests benchmarks examples)
COMPILE := $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-annotate --no-header \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host
RULES ?= off
ARGS ?=
# Tests wait more than they compute, so a few run at once; each of these has a broker and a database server of its own.
JOBS ?= 3
SPREAD := -n $(JOBS) --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long check format rules bench bench-growth replicas deploy-check kafka lock clean

help:  ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## the environment in .venv, from the lock, if it is not there yet

$(STAMP): requirements-dev.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup  ## the main job on embedded services (BREAK=dedupe|recover|reconcile|recall: must fail)
	$(BIN)/parley demo $(if $(BREAK),--break $(BREAK)) $(ARGS)

test: setup  ## every test but the long ones; on a real broker where there can be one (REQUIRE_KAFKA=1: must be)
	$(BIN)/pytest $(SPREAD) -m "not long" --rules=$(RULES) $(ARGS)

test-long: setup  ## the tests that take minutes, and the plans at full size
	REQUIRE_KAFKA=1 $(BIN)/pytest -m long --timeout=1800 $(ARGS)
	PARLEY_TEST_SCALE=1 $(BIN)/pytest --timeout=1800 $(wildcard tests/*/test_plans.py)

check: setup  ## format, lint, types, and who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports

format: setup  ## put the code into its format, mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

rules: setup  ## every test but the long ones, then one line a rule; fails when a due rule is not shown
	REQUIRE_KAFKA=1 $(BIN)/pytest $(SPREAD) -m "not long" --rules=gate $(ARGS)

bench: setup  ## the benchmarks, on brokers of their own
	$(BIN)/python -m benchmarks $(ARGS)

bench-growth: setup  ## what a claim costs as tables grow, and beside an old transaction (ARGS="--turns 1000000")
	$(BIN)/python -m benchmarks.growth $(ARGS)

replicas: setup  ## three workers on three brokers under every fault (PLANT=name: with a fault of ours, must fail)
	$(BIN)/python -m tests.replicas $(if $(PLANT),--plant $(PLANT)) $(ARGS)

deploy-check: setup  ## deploy/: manifests, alerts, dashboards against a real Prometheus, compose, image (ARGS=--quick: no run)
	$(BIN)/python -m deploy.checks $(ARGS)

kafka: setup  ## a real broker in the foreground (ARGS="--brokers 3 --sasl")
	$(BIN)/python -m tests.support.kafka $(ARGS)

lock: setup  ## the locks anew, from pyproject.toml
	$(COMPILE) --extra dev --extra embedded --extra otel --extra openai -o requirements-dev.lock pyproject.toml
	$(COMPILE) --extra otel --extra openai -c requirements-dev.lock -o requirements.lock pyproject.toml

clean:  ## what was made, but not the environment and the broker's jars
	rm -rf build dist .parley .pytest_cache .mypy_cache .ruff_cache .import_linter_cache *.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
