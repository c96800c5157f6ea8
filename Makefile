# Every target is a short script in scripts/ that also works alone. ARGS reaches it: make test ARGS='-k window'
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check bench chaos docs house snapshot clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup:  ## make .venv and install everything into it (other targets run it)
	@scripts/setup

demo: setup  ## replay a long conversation; ARGS=FILE for your own
	@scripts/demo $(ARGS)

test: setup  ## run the tests, without the slow ones
	@scripts/test $(ARGS)

test-all: setup  ## run all tests, also with browsers, crashes, models and several processes
	@scripts/test-all $(ARGS)

check: setup  ## format, lint, types, imports; ARGS=--fix fixes what it can
	@scripts/check $(ARGS)

bench: setup  ## run the benchmarks; each figure is a ratio within one run
	@scripts/bench $(ARGS)

chaos: setup  ## run the fault tests: kills, crashes, full disks
	@scripts/chaos $(ARGS)

snapshot: setup  ## compare public surfaces with the saved snapshot; ARGS=--save accepts, ARGS=--prose lists sentences
	@scripts/snapshot $(ARGS)

house: setup  ## print the size of the source, its wording, and what tests, import and start cost
	@scripts/house

docs: setup  ## build the documentation's site into site/; ARGS=serve previews it
	@scripts/docs $(ARGS)

clean:  ## remove .venv, caches and builds
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist site docs/reference .cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +
