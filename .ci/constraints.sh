#!/usr/bin/env bash
# Renews .ci/constraints.txt: the newest versions that pyproject.toml allows, as pip resolves them.
# Run it with the oldest Python that is supported (Debian 12's 3.11.2): a package may want a later.
#   .ci/constraints.sh /usr/bin/python3.11
set -euo pipefail
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"${1:?which Python? say: .ci/constraints.sh /usr/bin/python3.11}" -m venv "$fresh/venv"
"$fresh/venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[dev,factory,flash,mdns,spark]'
{
    sed -n '/^#/p' .ci/constraints.txt
    "$fresh/venv/bin/python" -m pip freeze --exclude-editable | grep -v '^#'
} >"$fresh/constraints.txt"
cp "$fresh/constraints.txt" .ci/constraints.txt
