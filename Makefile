# Every target is a short script in scripts/ that also works alone. ARGS reaches it: make test ARGS='-k window'
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check bench chaos docs house snapshot clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup:  ## make .venv and install everything into it (the others do this first)
	@scripts/setup

demo: setup  ## replay a long conversation; ARGS=FILE for your own
	@scripts/demo $(ARGS)

test: setup  ## run the tests, without the slow ones
	@scripts/test $(ARGS)

test-all: setup  ## run every test: also browsers, kills, models and processes
	@scripts/test-all $(ARGS)

check: setup  ## format, lint, types, imports; ARGS=--fix mends what can be mended
	@scripts/check $(ARGS)

bench: setup  ## measure; every figure is a ratio inside one run
	@scripts/bench $(ARGS)

chaos: setup  ## the whole fault suite: kills, crashes, full disks
	@scripts/chaos $(ARGS)

snapshot: setup  ## show what users would notice; ARGS=--save accepts it, ARGS=--prose lists changed sentences
	@scripts/snapshot $(ARGS)

house: setup  ## print the size of the source, its wording, and what tests, import and start cost
	@scripts/house

docs: setup  ## build the documentation's site into site/; ARGS=serve to read it while it is written
	@scripts/docs $(ARGS)

clean:  ## remove .venv, caches and builds
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist site docs/reference .cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +
