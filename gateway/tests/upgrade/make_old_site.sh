#!/usr/bin/env bash
# A site as an older SealMQ left it, for test_upgrade.py: make_old_site.sh COMMIT OUT.tar.xz
#
#   make_old_site.sh 8f5f3176 first.tar.xz      the oldest code that runs a site: labels, embedded broker
#   make_old_site.sh 5091f4a1 consent.tar.xz    the oldest with purposes and a Mosquitto of its own
#
# No version was ever released; all of the history calls itself 0.1.0. The old code runs in a
# virtualenv of its own, with the versions that it was tested with. It is killed at the end, as by a
# power cut, so that its WAL and its journal are in what it left. The keys are of this site alone.
set -euo pipefail
commit=$1 out=$(realpath "$2")
cd "$(dirname "$0")"
work=$(mktemp -d)
up=
trap '[ -z "$up" ] || stop KILL; rm -rf "$work"' EXIT

mkdir "$work/tree"
git -C "$(git rev-parse --show-toplevel)" archive "$commit" | tar -x -C "$work/tree"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
    --constraint "$work/tree/.ci/constraints.txt" -e "$work/tree"
sealmq=$work/venv/bin/sealmq

mkdir "$work/old"
cd "$work/old"
start() {
    "$sealmq" up site >up.log 2>&1 &
    up=$!
    for _ in $(seq 900); do
        ! "$sealmq" status site >/dev/null 2>&1 || return 0
        sleep 0.2
    done
    cat up.log >&2
    exit 1
}
below() {
    local each
    for each in $(ps -o pid= --ppid "$1"); do
        echo "$each"
        below "$each"
    done
}
# It and all that it has started.
stop() {
    local all
    all="$up $(below "$up")"
    if [ "$1" = KILL ]; then kill -KILL $all; else kill -TERM "$up"; fi
    while kill -0 $all 2>/dev/null; do sleep 0.1; done
    up=
}

purposes=no
if "$sealmq" init --help | grep -q -- --policy; then purposes=yes; fi
broker=()
[ $purposes = no ] || broker=(--broker mosquitto)
"$sealmq" init site --example factory --key-file "$PWD/site.key" --listen 127.0.0.1:21883 "${broker[@]}"
start
"$sealmq" client add site thermometer --label m1-temp -o thermometer.json
# A topic that gets its label from the client that publishes first.
"$sealmq" pub --enrolment thermometer.json -t machine/1/oven -m 180 -q 1
"$sealmq" pub site --client m2-temp-sensor -t machine/2/temperature -m 19.5 -q 1
if [ $purposes = yes ]; then
    # Consent: more than the site's own for one topic, and none any more for another.
    "$sealmq" reserve site --client m1-temp-sensor -t machine/1/temperature --aip analytics
    "$sealmq" reserve site --client officer -t machine/2/temperature --none
    "$sealmq" presubscribe site --client officer --for monitor -t machine/1/oven --purpose maintenance
    "$sealmq" client disable site m2-arm-operator
    "$sealmq" rekey site --label m1-temp
    # A session that waits for what comes.
    session=(--client monitor -t 'machine/1/#' --purpose service -q 1 -c -i night-shift)
    "$sealmq" pub site --client m1-temp-sensor -t machine/1/temperature -m 20 -q 1 -r --life 255
    "$sealmq" sub site "${session[@]}" -C 1 -W 30
    "$sealmq" pub site --client m1-temp-sensor -t machine/1/temperature -m 21 -q 1 --life 255
    # Mosquitto saves as it ends.
    stop TERM
    start
    "$sealmq" pub site --client m1-temp-sensor -t machine/1/temperature -m 21.5 -q 1 -r --life 255
    "$sealmq" pub --enrolment thermometer.json -t machine/1/oven -m 200 -q 1 -r --life 255
fi
stop KILL
find site -type s -delete
rm -f up.log
tar -cJf "$out" --owner=0 --group=0 --numeric-owner .
ls -l "$out"
