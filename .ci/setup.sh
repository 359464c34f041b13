#!/usr/bin/env bash
# Brings a fresh checkout to where `make test` and `make demo` run: Debian packages, the virtualenv
# in build/venv, MicroPython for this host. Safe to repeat: what is there already costs nothing.
# Each part leaves a stamp in build/ that holds the digest of what the part was made from.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
venv=build/venv

say() { printf 'setup: %s\n' "$*"; }
die() {  # ERROR HINT...
    printf 'setup: error: %s\n' "$1" >&2
    shift
    printf 'setup: hint: %s\n' "$@" >&2
    exit 1
}

# A package counts as installed only if dpkg says so: a command of the same name proves little.
missing_packages() {
    local name
    for name in $(sed -e 's/#.*//' .ci/apt-packages.txt); do
        [[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$name" 2>/dev/null) == ii* ]] ||
            printf '%s ' "$name"
    done
}

install_packages() {
    command -v dpkg-query >/dev/null ||
        die 'this set-up knows Debian and Raspberry Pi OS only (no dpkg-query here)' \
            "install what .ci/apt-packages.txt names by other means, see README.md"
    local missing root_prefix=()
    missing=$(missing_packages)
    missing=${missing% }
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
            root_prefix=(sudo)
        else
            die "these Debian packages are missing: $missing" \
                "as root, run: apt-get update && apt-get install --no-install-recommends $missing" \
                'then run make setup again'
        fi
    fi
    say "installing Debian packages: $missing (up to a minute)"
    local log=$root/build/apt.log
    local apt=("${root_prefix[@]}" env DEBIAN_FRONTEND=noninteractive
        apt-get -q -y -o DPkg::Lock::Timeout=300)
    # shellcheck disable=SC2086
    if ! { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends $missing; } \
        >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        die "apt-get could not install: $missing" "the whole output is in $log"
    fi
    case " $missing " in *' mosquitto '*)
        retire_service mosquitto >>"$log" 2>&1 ||
            die 'could not stop the mosquitto service that the package brought' \
                'as root, run: systemctl disable --now mosquitto' "the whole output is in $log" ;;
    esac
}

# Stops a service that a package of ours just brought, and keeps it from starting at boot: the tests
# start their own brokers. One that was here before is its owner's affair and never comes here.
retire_service() {
    local as_root=("${root_prefix[@]}")
    if [ -d /run/systemd/system ]; then
        "${as_root[@]}" systemctl disable --now "$1.service"
        return
    fi
    # Without systemd the package's init script, if it has one, was started. It stops by pid file.
    if [ -x "/etc/init.d/$1" ]; then
        "${as_root[@]}" service "$1" stop || return
    fi
    "${as_root[@]}" env PATH="$PATH:/usr/sbin:/sbin" update-rc.d "$1" disable
}

# `python3` if its version is supported, else the newest supported one on PATH. It must run: a
# version manager may have a command for a version that it does not have.
choose_python() {
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null && "$name" -c 'import sys, venv, ensurepip
sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
            printf '%s\n' "$name"
            return
        fi
    done
    die 'no usable Python 3.11 to 3.14 on PATH' \
        'Debian 12 and later have one: apt-get install python3 python3-venv'
}

# done_before STAMP DIGEST: whether this part was made from the same things.
done_before() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

make_venv() {
    # The path is part of it: a virtualenv does not survive being copied or moved.
    local want
    want=$({ printf '%s\n' "$root"; cat pyproject.toml .ci/constraints.txt; } | sha256sum)
    if done_before build/.venv-stamp "$want" && "$venv/bin/python" -c pass 2>/dev/null; then
        return 0
    fi
    rm -f build/.venv-stamp
    local python
    python=$(choose_python)
    # A virtualenv made elsewhere or by a Python that has gone is of no use; any other is kept.
    if ! "$venv/bin/python" -c pass 2>/dev/null || ! grep -qsF "$root/$venv/" "$venv/bin/pip"; then
        say "creating $venv with $("$python" --version 2>&1) (a few seconds)"
        rm -rf "$venv"
        "$python" -m venv "$venv"
    fi
    say 'installing the Python packages (a minute or two; several on a Raspberry Pi)'
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint .ci/constraints.txt --editable '.[dev,factory,flash,mdns,spark]' >build/pip.log 2>&1 || {
        tail -n 20 build/pip.log >&2
        die 'pip could not install the Python packages' "the whole output is in $root/build/pip.log"
    }
    printf '%s\n' "$want" >build/.venv-stamp
}

fetch_micropython() {
    local want
    want=$({ printf '%s\n' "$root"; cat firmware/host/*.py; } | sha256sum)
    if done_before build/.micropython-stamp "$want" && [ -d build/micropython/bin ]; then
        return 0
    fi
    rm -f build/.micropython-stamp
    say 'fetching MicroPython for this host (up to a minute)'
    "$venv/bin/python" firmware/host/fetch.py
    printf '%s\n' "$want" >build/.micropython-stamp
}

mkdir -p build
# One set-up at a time in one checkout.
exec 9>build/.setup-lock
flock -n 9 || { say 'waiting for another set-up in this checkout'; flock 9; }
install_packages
make_venv
fetch_micropython
