# Every target runs a script in scripts/ and passes ARGS to it: make test ARGS='-k window'
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check bench chaos clients integrations versions docs house snapshot clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup:  ## create .venv and install all dependencies (other targets run it)
	@scripts/setup

demo: setup  ## replay a long conversation; ARGS=FILE for your own file, ARGS=--postgres for PostgreSQL
	@scripts/demo $(ARGS)

test: setup  ## run the tests except slow ones
	@scripts/test $(ARGS)

test-all: setup  ## run all tests, including slow ones (browsers, crashes, models, processes)
	@scripts/test-all $(ARGS)

check: setup  ## check format, lint, types and imports; ARGS=--fix fixes what it can
	@scripts/check $(ARGS)

bench: setup  ## run the benchmarks; each figure is a ratio within one run
	@scripts/bench $(ARGS)

chaos: setup  ## run the fault tests: kills, crashes, full disks
	@scripts/chaos $(ARGS)

clients: setup  ## run real client programs directly and through Cuebook; ARGS=--relock updates them
	@scripts/clients $(ARGS)

integrations: setup  ## test the adapters, each with its framework in an environment of its own
	@scripts/integrations $(ARGS)

versions: setup  ## run the unit, storage and engine tests with other versions of Python; ARGS=3.13 for one
	@scripts/versions $(ARGS)

snapshot: setup  ## compare public surfaces with the saved snapshot; ARGS=--save accepts changes, ARGS=--prose lists sentences
	@scripts/snapshot $(ARGS)

house: setup  ## print measures of source size, wording and cost (tests, import, start)
	@scripts/house

docs: setup  ## build the documentation site in site/; ARGS=serve previews it
	@scripts/docs $(ARGS)

clean:  ## remove .venv, caches and builds
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist site docs/reference .cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +
