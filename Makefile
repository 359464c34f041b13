# SealMQ: every target sets up what it needs by itself; the second time that costs nothing.
# All that is made lies in build/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# A thousand interpreters start in a run of the tests: none is to compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON := build/venv/bin/python
# Long ones first, so that the short ones fill what is left at the end.
TESTS := spark/tests flash_scripts/tests hil_tests/tests gateway/tests firmware/tests \
    shared_spec/tests evidence/tests
# More options for pytest, say: make test PYTEST_ARGS='-k codec'
PYTEST_ARGS ?=
# Tests wait for processes and boards far more than they compute: eight workers more than there are
# cores. Each takes 300 MB, and what its tests start.
JOBS ?= $(shell expr $$(nproc) + 8)
# Of `make evidence`: device, rig...; none measures nothing; empty: all.
PARTS ?=
# How many inputs fuzzing tries on each target.
FUZZ_INPUTS ?= 50000
# Suites whose scripts run on real interpreters, and so can run on what ships.
BUILT_TESTS = $(filter-out %/test_shipping.py %/test_bench.py %/test_board_times.py,\
    $(shell grep -l 'from device_script' firmware/tests/test_*.py))
PYTEST = $(PYTHON) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

.PHONY: help install dist deb setup demo lint ready test test-full test-built test-red fuzz bench-gateway bench-device bench-purposes bench-spark evidence firmware clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

# A gateway needs neither the tests' Debian packages nor their Python packages: python3-venv is enough.
install: PREFIX ?= /opt/sealmq
install: BIN ?= /usr/local/bin
install: PYTHON3 ?= python3
install: EXTRAS ?=
install:  ## a gateway, in PREFIX (/opt/sealmq); EXTRAS=flash, spark, factory, mdns for boards, reports, archives, announcing
	@$(PYTHON3) -m venv $(PREFIX)
	@PYTHONDONTWRITEBYTECODE=1 $(PREFIX)/bin/pip install --disable-pip-version-check --quiet \
	    --constraint .ci/constraints.txt '.$(if $(EXTRAS),[$(EXTRAS)])'
	@[ ! -w $(BIN) ] || ln -sfn $(abspath $(PREFIX))/bin/sealmq $(BIN)/sealmq
	@$(PREFIX)/bin/sealmq --version

dist:  ## what a release has, in build/dist: wheel, sources, bill of materials, checksums
	@packaging/dist.sh

# EXTRAS, as above: flash,factory,mdns unless said.
deb: ARCH ?=
deb:  ## a Debian package for this machine's Debian, in build/deb (python3-venv is needed); ARCH=arm64 on a PC: for Pis
	@packaging/dist.sh wheel
	@packaging/deb.sh $(ARCH)

setup:  ## Debian packages, the virtualenv, MicroPython for this host
	@.ci/setup.sh

demo: setup  ## a protected factory with MicroPython clients, under a minute
	@$(PYTHON) -m sealmq.demo

lint: setup  ## ruff, mypy, the one-way imports
	@.ci/lint.sh

# Each of them is busy on one core.
ready: setup
	@$(MAKE) --no-print-directory --jobs 2 lint firmware build/tests-compiled

test: ready  ## lint and one test of each kind
	@$(PYTEST) -m 'not full' $(PYTEST_ARGS) $(TESTS)

test-full: FUZZ_INPUTS = 1000000
test-full: ready  ## everything, repeats and all combinations included (hours)
	@$(PYTEST) $(PYTEST_ARGS) $(TESTS)
	@$(MAKE) --no-print-directory test-built
	@$(PYTHON) hil_tests/red.py
	@$(PYTHON) -m fuzz --inputs $(FUZZ_INPUTS)

test-built: firmware  ## the device's suites on the .mpy files that ship, 64 and 32 bits
	@SEALMQ_MPY=$(CURDIR)/build/firmware $(PYTEST) -k 'not cpython' $(PYTEST_ARGS) $(BUILT_TESTS)

test-red: setup  ## each defence taken out; the tests that attack it must fail (an hour)
	@$(PYTHON) hil_tests/red.py

fuzz: setup  ## FUZZ_INPUTS inputs at each surface, steered by coverage; build/fuzz keeps them
	@$(PYTHON) -m fuzz --inputs $(FUZZ_INPUTS)

firmware: setup build/firmware/sizes.json  ## the device's .mpy files for each architecture, and their sizes, in build/firmware/

# What the tests' boards are flashed with, too: made anew whenever a source is newer.
build/firmware/sizes.json: $(wildcard firmware/sealmq_device/*.py shared_spec/sealmq_spec/*.py \
    firmware/host/build_mpy.py firmware/host/mpy_*.py firmware/host/wake.txt) | setup
	@$(PYTHON) firmware/host/build_mpy.py

# pytest rewrites each test file and compiles it: once, not in each of its workers at the same time.
build/tests-compiled: conftest.py pyproject.toml $(shell find $(TESTS) -name '*.py') | setup
	@$(PYTHON) -m pytest -p no:xdist --collect-only -qq $(TESTS) >build/collected.log || \
	    { tail -n 50 build/collected.log; exit 1; }
	@touch $@

bench-gateway: setup  ## what a message costs the gateway beside brokers alone, into build/bench/ (a quarter of an hour)
	@$(PYTHON) -m sealmq.cli bench gateway

bench-device: setup  ## what the device client costs beside TLS 1.3, into build/bench/ (minutes)
	@$(PYTHON) -m sealmq.cli bench device

# Bridge and agent are measured as operators have them, so they are installed as operators do.
evidence: setup firmware  ## PARTS (or all, hours) measured, reduced, and the tables of the pages made anew
	@$(if $(or $(filter bridge agent,$(PARTS)),$(if $(PARTS),,all)),$(MAKE) --no-print-directory install PREFIX=build/shipped \
	    BIN=build/shipped PYTHON3=/usr/bin/python3)
	@$(PYTHON) -m evidence $(if $(filter none,$(PARTS)),--reduce,$(PARTS))

bench-purposes: setup  ## what purpose limitation costs, into build/bench/ (ten minutes)
	@$(PYTHON) -m sealmq.cli bench purposes

bench-spark: setup  ## how reports grow with their logs, into build/bench/ (an hour and a half)
	@$(PYTHON) spark/bench/scale.py --out build/bench/spark.json
	@$(PYTHON) spark/bench/night.py --out build/bench/spark-night.json

clean:  ## remove all that was made, the virtualenv included
	rm -rf build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
