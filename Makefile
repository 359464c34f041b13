# SealMQ: every target sets up what it needs by itself; the second time that costs nothing.
# All that is made lies in build/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON := build/venv/bin/python
TESTS := shared_spec/tests firmware/tests gateway/tests hil_tests/tests
# More options for pytest, say: make test PYTEST_ARGS='-k codec'
PYTEST_ARGS ?=

.PHONY: help setup demo lint test test-full bench-gateway clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

setup:  ## Debian packages, the virtualenv, MicroPython for this host
	@.ci/setup.sh

demo: setup  ## a protected factory with MicroPython clients, under a minute
	@$(PYTHON) -m sealmq.demo

lint: setup  ## ruff, mypy, the one-way imports
	@.ci/lint.sh

test: lint  ## lint and all tests but the long ones, within ten minutes
	@$(PYTHON) -m pytest -m 'not full' $(PYTEST_ARGS) $(TESTS)

test-full: lint  ## everything
	@$(PYTHON) -m pytest $(PYTEST_ARGS) $(TESTS)

bench-gateway: setup  ## what a message costs the gateway, into build/bench/
	@mkdir -p build/bench
	@for part in codec policy mediator; do \
	    $(PYTHON) gateway/bench/$$part.py | tee build/bench/gateway-$$part.json; done

clean:  ## remove all that was made, the virtualenv included
	rm -rf build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
