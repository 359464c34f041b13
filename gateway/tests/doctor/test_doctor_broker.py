"""`sealmq doctor --broker` at a real Mosquitto: what is open is found by its name, nothing else is,
and what could not be seen is not called closed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor.brokers import (
    BELOW,
    PASSWORDS,
    SAFE,
    SAFE_ACL,
    JudgesOnce,
    Mosquitto,
    accounts_file,
    babbles,
    floods,
    grants_and_hangs,
    hangs,
    lies,
    listening,
    serving,
)
from sealmq.broker import issuing
from sealmq.broker.peer import Peer
from sealmq.broker.target import Target
from sealmq.doctor.accounts import load
from sealmq.doctor.cures import CURES, TITLES
from sealmq.doctor.foreign import examine
from sealmq.doctor.probe import Limits, Where
from sealmq.doctor.reach import reach
from sealmq.doctor.result import Finding
from sealmq.doctor.revoking import Revoking

RULES = set(TITLES)


def without(*starts: str) -> tuple[str, ...]:
    """The safe configuration without these lines."""
    return tuple(line for line in SAFE if not line.startswith(starts))


def visit(broker: Mosquitto, file: str = "acl", *, told: bool = True) -> list[Finding]:
    revoking = Revoking.of(*broker.revoking(file, told=told), False)
    where = Where("127.0.0.1", "127.0.0.1", broker.port)
    accounts = load(accounts_file(broker.folder))
    return asyncio.run(examine(where, accounts, Limits(answer_s=1.5), revoking))


def by_rule(found: list[Finding], ok: bool | None) -> set[str]:
    return {one.rule for one in found if one.ok is ok}


# What is open in a configuration that is safe but for this.
UNSAFE = {
    "anonymous": (
        (*without("allow_anonymous", "use_username"), "allow_anonymous true"),
        SAFE_ACL,
        # Who gives no name cannot be called by it: without that line ids are anybody's.
        {"anonymous", "takeover"},
    ),
    # A name is asked for, since ids are names; its password is compared with nothing.
    "no password file": (
        (*without("allow_anonymous", "password_file"), "allow_anonymous true"),
        SAFE_ACL,
        {"guess"},
    ),
    "no access list": (
        without("acl_file"),
        SAFE_ACL,
        {"read", "hash", "share", "write", "will", "sys", "anew"},
    ),
    "all is readable": (
        SAFE,
        SAFE_ACL.replace("user bob\n", "user bob\ntopic read #\n"),
        {"read", "hash", "share"},
    ),
    "publishing across": (
        SAFE,
        SAFE_ACL.replace("user bob\n", f"user bob\ntopic write {BELOW}#\n"),
        {"write", "will"},
    ),
    "$SYS": (SAFE, SAFE_ACL.replace("user bob\n", "user bob\ntopic read $SYS/#\n"), {"sys"}),
    "client ids": (without("use_username"), SAFE_ACL, {"takeover"}),
    # As Debian's 2.0.11 is without the line, whose default its manual says is `true`.
    "retained": (without("check_retain_source"), SAFE_ACL, {"retained"}),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_what_is_open_is_found_and_nothing_else(name: str, tmp_path: Path) -> None:
    lines, acl, is_open = UNSAFE[name]
    broker = Mosquitto(tmp_path, lines, acl)
    try:
        found = visit(broker)
    finally:
        broker.stop()
    assert by_rule(found, False) == is_open, [one.to_json() for one in found]
    assert RULES == {one.rule for one in found}
    if name == "anonymous":
        [row] = [one for one in found if one.rule == "anonymous"]
        assert row.reason == "who gives no name is let in and served"
    # Of a revocation that has not taken effect nothing else is known.
    unknown = {"live", "kept", "retained"} if "anew" in is_open else set()
    assert by_rule(found, None) == unknown
    for one in found:
        told = one.to_json()
        assert ("closed_by" in told) is (one.ok is False)
        if one.ok is False:
            assert set(CURES[one.rule]) == {"mosquitto", "emqx"}
            assert "ann" not in one.who or name not in ("all is readable", "$SYS")


def test_a_revocation_that_the_broker_was_not_told_of_is_no_leftover(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    try:
        found = visit(broker, told=False)
    finally:
        broker.stop()
    assert by_rule(found, False) == {"anew"}
    assert by_rule(found, None) == {"live", "kept", "retained"}


def test_who_has_no_password_any_more_has_rights_as_far_as_what_it_retained_goes(
    tmp_path: Path,
) -> None:
    broker = Mosquitto(tmp_path)
    try:
        found = visit(broker, "passwords")
    finally:
        broker.stop()
    assert by_rule(found, False) == {"retained"}
    assert by_rule(found, None) == set()


def test_a_broker_that_judges_once_is_open_after_a_revocation(tmp_path: Path) -> None:
    revoked = tmp_path / "revoked"
    revoking = Revoking(("touch", str(revoked)), ("rm", str(revoked)))

    found = judged(JudgesOnce(revoked), tmp_path, revoking)
    assert by_rule(found, False) == {"live", "kept", "retained"}, [f.to_json() for f in found]
    assert by_rule(found, None) == set()
    assert not revoked.exists()


def test_what_nobody_gets_is_not_called_closed_to_one(tmp_path: Path) -> None:
    # The two messages of what is allowed come; after that ann's topic is dead, to everybody.
    broker = JudgesOnce(tmp_path / "never", deaf=("ann", 2))
    found = judged(broker, tmp_path, Revoking())
    of_bob = {one.rule: one for one in found if one.who == "bob"}
    for rule in ("read", "hash", "share", "write", "will"):
        assert (of_bob[rule].ok, of_bob[rule].word) == (None, "could not tell:"), rule
        assert f"{BELOW}ann" in of_bob[rule].reason
    assert by_rule(found, False) == set()


def judged(broker: JudgesOnce, folder: Path, revoking: Revoking) -> list[Finding]:
    accounts = load(accounts_file(folder))

    async def both() -> list[Finding]:
        async with listening(broker) as port, asyncio.timeout(30):
            where = Where("127.0.0.1", "127.0.0.1", port)
            return await examine(where, accounts, Limits(answer_s=1), revoking)

    return asyncio.run(both())


# --- the command, at a safe broker ---


def doctor(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sealmq.cli", "doctor", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path_factory.mktemp("safe"))
    accounts_file(broker.folder)
    yield broker
    broker.stop()


def at(broker: Mosquitto) -> tuple[object, ...]:
    return ("--broker", broker.url, "--as", broker.folder / "accounts.toml", "--answer", 2)


def test_a_safe_broker_is_closed_and_nothing_is_left_of_it(safe: Mosquitto) -> None:
    revoke, restore = safe.revoking()
    words = ("--revoke-command", revoke, "--restore-command", restore)
    done = doctor(*at(safe), *words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["healthy"] is True
    assert {row["rule"] for row in told["tries"]} == RULES
    assert {row["result"] for row in told["tries"]} == {"closed"}
    # What only ops may do is refused to both others, each in a row of its own.
    assert [r["who"] for r in told["tries"] if r["rule"] == "write"] == ["ann", "bob"]
    assert all(word not in done.stdout + done.stderr for word in PASSWORDS.values())
    assert safe.acl.read_text() == SAFE_ACL
    assert retained(safe) == {}


def test_without_a_revocation_it_says_so_and_is_not_healthy(safe: Mosquitto) -> None:
    done = doctor(*at(safe))
    assert done.returncode == 3, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("revoked: ")]
    assert len(rows) == 4
    assert all("not tried:  nothing revokes an account: give --revoke" in row for row in rows)
    assert "OPEN" not in done.stdout
    assert "4 of 21 could not be tried" in done.stdout


def test_rights_that_nobody_gives_back_are_left_and_said_to_be(safe: Mosquitto) -> None:
    revoke, restore = safe.revoking()
    try:
        done = doctor(*at(safe), "--revoke-command", revoke, "--json")
    finally:
        subprocess.run(["sh", "-c", restore], check=True, timeout=30)
    [row] = [row for row in json.loads(done.stdout)["tries"] if row["rule"] == "left"]
    assert row["result"] == "could not tell"
    assert "rights that were taken away (nobody gives them back" in row["reason"]


def test_what_somebody_else_retains_is_left_alone(safe: Mosquitto) -> None:
    retained(safe, b"theirs")
    try:
        revoke, restore = safe.revoking()
        words = ("--revoke-command", revoke, "--restore-command", restore, "--json")
        told = json.loads(doctor(*at(safe), *words).stdout)
        [row] = [row for row in told["tries"] if row["rule"] == "retained"]
        assert row["ok"] is None
        assert row["result"] == "not tried"
        assert retained(safe) == {f"{BELOW}ann": b"theirs"}
    finally:
        retained(safe, b"")


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)]
)
def test_who_ends_it_half_way_finds_nothing_left(safe: Mosquitto, number: int) -> None:
    mark = safe.folder / f"revoking-{number}"
    revoke = f"sh -c 'touch {mark}; exec sleep 50'"
    words = ["doctor", *map(str, at(safe)), "--revoke-command", revoke]
    process = subprocess.Popen(
        [sys.executable, "-m", "sealmq.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    end = time.monotonic() + 30
    while not mark.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    # It is there now, and whoever subscribes gets it.
    assert retained(safe)[f"{BELOW}ann"].startswith(b"sealmq doctor, may be deleted")
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == (130 if number == signal.SIGINT else 2), said
    assert b"Traceback" not in said
    assert retained(safe) == {}


def test_by_hand_it_waits_for_who_takes_the_rights_away(safe: Mosquitto) -> None:
    revoke, restore = safe.revoking()
    words = ["doctor", *map(str, at(safe)), "--revoke-by-hand", "--restore-command", restore]
    process = subprocess.Popen(
        [sys.executable, "-m", "sealmq.cli", *words, "--json"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.read(26) == b"take ann's rights away at "
    subprocess.run(["sh", "-c", revoke], check=True, timeout=30)
    out, _ = process.communicate(b"\n", timeout=60)
    assert process.returncode == 0, out


@pytest.mark.full
def test_a_hand_that_is_not_there_is_no_revocation(safe: Mosquitto) -> None:
    command = [sys.executable, "-m", "sealmq.cli", "doctor", *map(str, at(safe))]
    command += ["--revoke-by-hand", "--json"]
    with open(os.devnull) as nobody:
        done = subprocess.run(
            command, stdin=nobody, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 3
    rows = [row for row in json.loads(done.stdout)["tries"] if row["rule"] == "live"]
    assert [row["result"] for row in rows] == ["not tried"]


def retained(broker: Mosquitto, *publish: bytes) -> dict[str, bytes]:
    """All that it keeps below the doctor's topic, once this was retained on ann's."""

    async def ask() -> dict[str, bytes]:
        target = Target("127.0.0.1", broker.port, "ops", PASSWORDS["ops"])
        found = {}
        async with Peer(target, "ops") as ops:
            for payload in publish:
                await ops.publish(f"{BELOW}ann", payload, retain=True)
            await ops.subscribe(f"{BELOW}#")
            await ops.publish(f"{BELOW}all", b"that is all")
            while (message := await ops.message()).payload != b"that is all":
                found[message.topic] = message.payload
        return found

    return asyncio.run(ask())


def test_over_tls_who_shows_no_certificate_gets_no_connection(tmp_path: Path) -> None:
    ca, other = issuing.new_ca("ca"), issuing.new_ca("another")
    pairs = {"server": issuing.server(ca, ["localhost"]), "doctor": issuing.client(ca, "doctor")}
    for name, pair in {"ca": ca, "other": other, **pairs}.items():
        (tmp_path / f"{name}.crt").write_bytes(pair.cert_pem)
        (tmp_path / f"{name}.key").touch(0o600)
        (tmp_path / f"{name}.key").write_bytes(pair.key_pem)
    tls = "cafile ca.crt\ncertfile server.crt\nkeyfile server.key\nrequire_certificate true"
    broker = Mosquitto(tmp_path, tls=tls)
    accounts = load(accounts_file(tmp_path))

    async def tried_with(cafile: str) -> list[Finding]:
        files = (tmp_path / name for name in (cafile, "doctor.crt", "doctor.key"))
        where = await reach(f"mqtts://localhost:{broker.port}", [], *files)
        return await examine(where, accounts, Limits(), Revoking())

    try:
        found = asyncio.run(tried_with("ca.crt"))
        assert by_rule(found, False) == set()
        assert by_rule(found, None) == {"anew", "live", "kept", "retained"}
        [anonymous] = [one for one in found if one.rule == "anonymous"]
        # Which of both depends on what comes first, the alert or the end.
        assert anonymous.reason.partition("certificate: ")[2] in ("no TLS", "hung up on")
        # Of somebody who is not that broker nothing is known.
        found = asyncio.run(tried_with("other.crt"))
        assert by_rule(found, True) == {"left"}
        assert by_rule(found, False) == set()
    finally:
        broker.stop()


# --- brokers that misbehave ---


def tried(answer: Any, folder: Path, limits: Limits, pause_s: float = 0.0) -> list[Finding]:
    accounts = load(accounts_file(folder))

    async def both() -> list[Finding]:
        async with serving(answer, pause_s) as port, asyncio.timeout(30):
            where = Where("127.0.0.1", "127.0.0.1", port)
            return await examine(where, accounts, limits, Revoking(("true",)))

    return asyncio.run(both())


def test_one_that_lies_is_never_called_closed(tmp_path: Path) -> None:
    found = tried(lies, tmp_path, Limits(answer_s=0.3))
    assert by_rule(found, False) == {"anonymous", "guess"}
    assert by_rule(found, None) == RULES - {"anonymous", "guess", "left"}
    assert {one.word for one in found if one.rule == "read"} == {"not tried:"}


@pytest.mark.parametrize("answer", [hangs, grants_and_hangs, babbles])
def test_one_that_does_not_answer_is_given_up(answer: Any, tmp_path: Path) -> None:
    found = tried(answer, tmp_path, Limits(answer_s=0.1))
    assert by_rule(found, False) == set()
    assert by_rule(found, True) == {"left"}
    assert {one.rule for one in found} == RULES


def test_a_slow_one_ends_with_the_time(tmp_path: Path) -> None:
    found = tried(lies, tmp_path, Limits(seconds=0.5, answer_s=5), pause_s=0.4)
    assert {one.rule for one in found} == RULES
    assert by_rule(found, True) == {"left"}
    [first] = [one for one in found if one.rule == "allowed"]
    assert "its time of 0.5 s is over" in first.reason


def test_one_that_floods_spends_the_messages(tmp_path: Path) -> None:
    found = tried(floods, tmp_path, Limits(messages=300))
    [first] = [one for one in found if one.rule == "allowed"]
    assert (first.ok, first.word) == (None, "could not tell:")
    assert "its 300 messages are spent" in first.reason
