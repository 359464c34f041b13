#!/usr/bin/env bash
# The one check for people and CI: ruff, mypy --strict, the one-way imports. `.ci/lint.sh fix` lets
# ruff put right what it can.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=build/venv/bin

say() { printf 'lint: %s\n' "$*"; }

if [ "${1:-}" = fix ]; then
    "$bin/ruff" check --fix-only --quiet .
    "$bin/ruff" format --quiet .
fi
say 'ruff'
"$bin/ruff" check --quiet --output-format concise .
"$bin/ruff" format --quiet --check .
say 'mypy: the packages and tools (some seconds)'
# Each folder of tests is checked by a run of its own: they share file names.
"$bin/mypy" --no-error-summary --exclude '/tests/' shared_spec firmware gateway flash_scripts \
    spark evidence conftest.py .ci/imports.py
MYPYPATH=packaging "$bin/mypy" --no-error-summary packaging/bill.py
for tests in shared_spec firmware gateway flash_scripts hil_tests spark; do
    [ -n "$(find "$tests/tests" -name '*.py' -print -quit 2>/dev/null)" ] || continue
    say "mypy: $tests/tests"
    MYPYPATH=$tests/tests:$tests:shared_spec/tests:hil_tests:hil_tests/tests:flash_scripts:spark "$bin/mypy" --no-error-summary "$tests/tests"
done
say 'mypy: hil_tests: faults, the virtual board, the rig'
MYPYPATH=hil_tests:hil_tests/tests:flash_scripts "$bin/mypy" --no-error-summary \
    hil_tests/faults hil_tests/sealmq_vboard hil_tests/sealmq_hil
say 'mypy: evidence/tests'
"$bin/mypy" --no-error-summary evidence/tests
say 'imports'
"$bin/python" .ci/imports.py
