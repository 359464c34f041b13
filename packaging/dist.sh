#!/usr/bin/env bash
# What a release has, in build/dist: the wheel and the source archive, the bill of materials of what a
# gateway and its extras install (CycloneDX), and the checksums of all of them. The same commit makes
# the same bytes, in each folder. `dist.sh wheel`: wheel and source archive alone.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON3:-python3}
out=build/dist
# Of the tool alone, in a virtualenv of its own: what it needs is no affair of a gateway's.
sbom='cyclonedx-bom==7.5.0'
build='build==1.6.1'

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
# Modes of files go into the archives.
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out"

# What git has, and nothing that lies in the checkout besides.
git archive HEAD | tar -x -C "$work" --one-top-level=tree
"$python" -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet --disable-pip-version-check "$build" "$sbom"
"$work/tools/bin/python" -m build --outdir "$out" "$work/tree" >"$work/build.log" 2>&1 || {
    cat "$work/build.log" >&2
    exit 1
}

[ "${1-}" != wheel ] || exit 0

# The bill names what the tests ran with: a gateway, and what each of an operator's extras brings
# besides.
extras=$("$python" -c '
import sys, tomllib
told = tomllib.load(open(sys.argv[1], "rb"))["project"]["optional-dependencies"]
print(",".join(sorted(told.keys() - {"bench", "dev"})))' "$work/tree/pyproject.toml")
"$python" -m venv "$work/gateway"
"$work/gateway/bin/pip" install --quiet --disable-pip-version-check --no-compile \
    --constraint .ci/constraints.txt "$(ls "$out"/sealmq-*.whl)[$extras]"
"$work/gateway/bin/pip" uninstall --quiet --yes pip setuptools 2>/dev/null
bill=$out/sealmq-$(basename "$out"/sealmq-*.whl | cut -d- -f2).cdx.json
"$work/tools/bin/cyclonedx-py" environment --output-reproducible --output-format JSON \
    --output-file "$bill" "$work/gateway" 2>"$work/bill.log" || {
    cat "$work/bill.log" >&2
    exit 1
}
"$work/tools/bin/python" packaging/bill.py "$(echo "$work"/gateway/lib/python3*/site-packages)" \
    "$bill" "$(basename "$out"/sealmq-*.whl)" "$extras"
(cd "$out" && sha256sum -- sealmq-* >SHA256SUMS)
cat "$out/SHA256SUMS"
