"""The real process over its socket: restarts, garbage, other users, live changes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kg.helpers import WAIT_S, Device, KgProcess, MadeSite, copy_of, running
from sealmq.cli.main import main
from sealmq.kg.core import Kg
from sealmq.kg.errors import Denied
from sealmq.kg.ops import _TABLE, Ops, Peer
from sealmq.kg.process import Process
from sealmq.kg.server import roles_of
from sealmq.kglink import (
    MAX_FRAME,
    Change,
    KgBad,
    KgClient,
    KgDenied,
    KgUnauthentic,
    KgUnknown,
)
from sealmq.kgtypes import Applied
from sealmq.unix import short_path
from sealmq_spec.identity import Identity


@pytest.fixture
def process(site: MadeSite) -> Iterator[KgProcess]:
    with running(site) as process:
        yield process


@pytest.fixture(scope="module")
def shared(factory: MadeSite) -> Iterator[KgProcess]:
    """One that lives through all tests that leave nothing behind, where other users get to: pytest
    closes its own folders to them whenever it is started, by somebody else too.
    """
    with tempfile.TemporaryDirectory(prefix="sealmq-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        with running(copy_of(factory, folder)) as process:
            yield process


def call(process: KgProcess, *ops: tuple[Any, ...]) -> list[Any]:
    """Method calls of KgClient on one connection."""

    async def run() -> list[Any]:
        async with await KgClient.connect(process.site.layout.kg_socket) as kg:
            return [await getattr(kg, op)(*args) for op, *args in ops]

    return asyncio.run(run())


def test_provisioning_through_the_socket(process: KgProcess) -> None:
    (enrolment,) = call(process, ("enrol", "m1-temp-sensor"))
    device = Device(enrolment)
    hello, answer, snapshot = call(
        process, ("hello", 1, bytes(16)), ("answer", device.ask()), ("snapshot",)
    )
    assert hello.site == device.ident.site
    device.accept(answer.packet)
    client = next(c for c in snapshot["clients"] if c["number"] == device.ident.client)
    assert client["links"] == answer.links
    km = device.ident.km.hex()
    assert answer.links == [{"gen": 1, "epoch": 1, "km": km, "pending": True}]
    assert answer.gen == 1
    assert answer.kseq == snapshot["kseq"] == device.ident.kseq
    _, clients = call(process, ("confirm", device.ident.client, 1), ("clients",))
    assert clients[0]["gen"] == 1
    nonce = bytes(range(16))
    (blob,) = call(process, ("time", device.ident.client, nonce, 1))
    assert len(blob) == 43
    enrolment, dump = call(process, ("lend", "m1-temp-sensor"))[0]
    lent = Identity.from_enrolment(enrolment)
    assert lent.load(dump)
    assert (lent.gen, lent.km) == (1, device.ident.km)


def test_refusals_have_types(shared: KgProcess) -> None:
    (enrolment,) = call(shared, ("enrol", "monitor"))
    device = Device(enrolment)
    genuine = device.ask()
    request = bytearray(genuine)
    request[-1] ^= 1
    cases: list[tuple[Any, ...]] = [
        (KgUnauthentic, "does not verify", ("hello", 1, bytes(16)), ("answer", bytes(request))),
        (KgBad, "answer comes behind hello", ("answer", bytes(request))),
        (KgBad, "answer comes behind hello", ("snapshot",), ("answer", genuine)),
        (KgBad, "43 bytes in hex", ("answer", b"short")),
        (KgUnknown, "mediator 2", ("hello", 2, bytes(16))),
        (KgUnknown, "no client nobody", ("enrol", "nobody")),
        (KgUnknown, "client 99", ("time", 99, bytes(16), 1)),
        (KgUnknown, "no generation 9", ("confirm", 1, 9)),
        (KgBad, "from 1 to", ("confirm", 1, -1)),
        (KgUnknown, "no label nothing", ("rekey", ["nothing"], 0)),
    ]
    for kind, what, *ops in cases:
        with pytest.raises(kind, match=what):
            call(shared, *ops)
    assert request.hex() not in shared.stderr.read_text()


def test_kill_9_between_answers_never_repeats_inst(site: MadeSite) -> None:
    """SPEC.md 5: nonces are inst, ms, seq; inst is on disk before the first use."""
    insts: list[int] = []
    nonces: set[bytes] = set()
    device = None
    for _ in range(4):
        process = KgProcess(site).wait_ready()
        try:
            (status,) = call(process, ("status",))
            if device is None:
                device = Device(call(process, ("enrol", "monitor"))[0])
            for _ in range(2):
                hello, answer = call(process, ("hello", 1, bytes(16)), ("answer", device.ask()))
                device.accept(answer.packet)
                nonces.add(answer.packet[2:14])
                insts.append(hello.inst)
            insts.append(status["inst"])
        finally:
            process.kill()
    assert len(set(insts)) == len(insts) == 12
    assert len(nonces) == 8
    assert device is not None
    assert device.ident.gen == 1  # pending all the time, and on disk from the first answer on


def test_an_answer_that_left_is_on_disk(site: MadeSite) -> None:
    with running(site) as process:
        device = Device(call(process, ("enrol", "monitor"))[0])
        _, answer = call(process, ("hello", 1, bytes(16)), ("answer", device.ask()))
        process.kill()
    device.accept(answer.packet)
    with running(site) as process:
        (snapshot,) = call(process, ("snapshot",))
    links = next(c for c in snapshot["clients"] if c["name"] == "monitor")["links"]
    assert links == [{"gen": 1, "epoch": 1, "km": device.ident.km.hex(), "pending": True}]


# --- garbage --------------------------------------------------------------------------------------


class Raw:
    """A connection that can say anything."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WAIT_S)
        with short_path(path) as short:
            self.sock.connect(short)

    def frame(self, body: bytes) -> dict[str, Any]:
        self.sock.sendall(struct.pack(">I", len(body)) + body)
        return self.read()

    def read(self) -> dict[str, Any]:
        size = struct.unpack(">I", self._exactly(4))[0]
        frame: dict[str, Any] = json.loads(self._exactly(size))
        return frame

    def _exactly(self, n: int) -> bytes:
        data = b""
        while len(data) < n:
            more = self.sock.recv(n - len(data))
            if not more:
                raise EOFError
            data += more
        return data


GARBAGE: list[tuple[bytes, str, str]] = [
    (b"", "bad", "0 bytes that are no JSON object"),
    (b"\xff\xfe\x00", "bad", "no JSON object"),
    (b"[]", "bad", "no JSON object"),
    (b"[" * 100_000, "bad", "no JSON object"),
    (b'{"op": ' + b"9" * 50_000 + b"}", "bad", "no JSON object"),
    (b'{"id": 7}', "unknown", "no operation"),
    (b'{"op": "no-such", "id": 7}', "unknown", "'no-such'"),
    (b'{"op": ["hello"], "id": 7}', "unknown", "no operation"),
    (b'{"op": "__init__", "id": 7}', "unknown", "no operation"),
    (b'{"op": "hello", "id": 7}', "bad", "mediator is a number"),
    (b'{"op": "hello", "id": 7, "mediator": true}', "bad", "mediator is a number"),
    (b'{"op": "hello", "id": 7, "mediator": 1e3}', "bad", "mediator is a number"),
    (b'{"op": "hello", "id": 7, "mediator": 16777216}', "bad", "mediator is a number"),
    (b'{"op": "answer", "id": 7, "packet": 5}', "bad", "43 bytes in hex"),
    (b'{"op": "answer", "id": 7, "packet": "' + b"zz" * 43 + b'"}', "bad", "43 bytes in hex"),
    (b'{"op": "enrol", "id": 7, "clients": [{}]}', "bad", "a name is text"),
    (b'{"op": "enrol", "id": 7, "clients": ["' + b"a" * 65 + b'"]}', "bad", "1 to 64"),
    (b'{"op": "snapshot", "id": 7, "at": -5}', "bad", "at is a number"),
    (b'{"op": "snapshot", "id": 7, "at": 1, "kseq": 1}', "changed", "begin anew"),
    (b'{"op": "rekey", "id": 7, "labels": [], "handover_s": 0}', "bad", "list of names"),
    (b'{"op": "rekey", "id": 7, "labels": [1], "handover_s": 0}', "bad", "a name is text"),
]


def test_garbage_gets_a_clear_error_and_the_server_survives(shared: KgProcess) -> None:
    path = shared.site.layout.kg_socket
    witness = Raw(path)
    peer = Raw(path)
    for body, code, what in GARBAGE:
        answer = peer.frame(body)
        assert answer["ok"] is False, body[:60]
        assert answer["code"] == code, answer
        assert what in answer["error"], answer
        assert answer["id"] == (7 if b'"id": 7' in body else 0)
        # the same connection still works
        assert peer.frame(b'{"op": "status", "id": 8}')["ok"] is True
    assert witness.frame(b'{"op": "status", "id": 1}')["ok"] is True


def test_frames_that_are_too_long_end_the_connection(shared: KgProcess) -> None:
    peer = Raw(shared.site.layout.kg_socket)
    peer.sock.sendall(struct.pack(">I", MAX_FRAME + 1) + b"x" * 1000)
    answer = peer.read()
    assert answer["code"] == "bad"
    assert "at most 4194304 fit" in answer["error"]
    with pytest.raises((EOFError, ConnectionResetError)):
        peer.read()
    assert call(shared, ("status",))[0]["ok"] is True


def test_half_frames_and_hang_ups_harm_nobody(shared: KgProcess) -> None:
    path = shared.site.layout.kg_socket
    waiting = [Raw(path) for _ in range(5)]
    for peer in waiting:
        peer.sock.sendall(b"\x00\x00\x00\x50{")
    for peer in waiting[:3]:
        peer.sock.close()
    assert call(shared, ("status",))[0]["ok"] is True


def test_the_connection_that_was_idle_longest_makes_place_for_one_more(shared: KgProcess) -> None:
    path = shared.site.layout.kg_socket
    watcher = Raw(path)
    assert watcher.frame(b'{"op": "watch", "id": 1}')["ok"] is True
    silent = [Raw(path) for _ in range(100)]
    answers = call(shared, ("status",))
    assert answers[0]["ok"] is True
    assert watcher.frame(b'{"op": "status", "id": 2}')["ok"] is True
    for _ in range(20):
        peer = Raw(path)
        assert peer.frame(b'{"op": "status", "id": 1}')["ok"] is True
        silent.append(peer)
    for peer in silent:
        peer.sock.close()
    watcher.sock.close()


# --- who may --------------------------------------------------------------------------------------


def told_as(uid: int, path: Path) -> str:
    """What a process of another user is told that only connects. SO_PEERCRED gives it away."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:  # nothing of pytest may run on in here
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            try:
                said = Raw(path).read()["code"]
            except PermissionError:
                said = "no permission to connect"
            os.write(theirs, said.encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as text:
        told = text.read()
    os.waitpid(pid, 0)
    return told


OPS = ["hello", "snapshot", "answer", "time", "confirm", "watch", "took", "in-force", "reload",
       "rekey",
       "reopen", "enrol", "lend", "clients", "labels", "status", "hold", "policy", "keep", "kept",
       "mediators", "peer-enrol", "peer-watch", "peer-give", "peer-take", "border-enrol",
       "border-watch"]  # fmt: skip


def test_who_may_what(site: MadeSite) -> None:
    layout, me = site.layout, os.geteuid()
    assert roles_of(me, layout) == {"mediator", "admin", "bridge", "border"}
    assert roles_of(0, layout) >= {"admin"}
    assert roles_of(54321, layout) == frozenset()
    assert {op: role for op, (role, _) in _TABLE.items()} == {
        op: {"peer": "bridge", "border": "border"}.get(
            op.partition("-")[0], "mediator" if i < 8 else "admin"
        )
        for i, op in enumerate(OPS)
    }
    if me == 0:
        os.chown(layout.state_of("mediator"), 54321, 54321)
        os.chown(layout.root, 54322, 54322)
        kg = 54323  # as with separate users
        assert roles_of(54321, layout, kg) == {"mediator"}
        assert roles_of(0, layout, kg) == {"admin"}
        assert roles_of(54322, layout, kg) == {"admin"}
        # the owner's site, brought up by root
        assert roles_of(0, layout) == {"mediator", "admin", "bridge", "border"}


def test_without_a_role_every_operation_is_denied(site: MadeSite, kg: Kg) -> None:
    ops = Ops(kg, site.layout.config, lambda *_, **__: None)
    before = kg.snapshot()
    for role in ([], ["mediator"], ["admin"]):
        peer = Peer(1, 54321, frozenset(role))
        for op, (needed, _) in _TABLE.items():
            if needed not in role:
                with pytest.raises(Denied, match=f"user 54321 is no {needed} here"):
                    ops.run(peer, op, {"client": "monitor", "mediator": 1})
    assert kg.snapshot() == before


def test_a_user_without_a_role_is_sent_away_at_once(shared: KgProcess) -> None:
    if os.geteuid() != 0:
        return  # only root can become somebody else; the two tests above say the rest
    path = shared.site.layout.kg_socket
    assert told_as(54321, path) == "no permission to connect"
    # Where the site's owner is another one than the key generator, the kernel cannot tell.
    path.chmod(0o666)
    for _ in range(100):
        assert told_as(54321, path) == "denied"
    assert call(shared, ("status",))[0]["ok"] is True
    path.chmod(0o600)


# --- live changes ---------------------------------------------------------------------------------


def test_client_add_takes_effect_live(
    process: KgProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = str(process.site.layout.root)

    async def watch() -> list[Change]:
        async with await KgClient.connect(process.site.layout.kg_socket) as kg:
            before = (await kg.snapshot())["kseq"]
            changes = kg.changes()
            first = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            add = ["client", "add", root, "new", "--label", "m1-temp"]
            assert await asyncio.to_thread(main, add) == 0
            async with asyncio.timeout(WAIT_S):
                change = await first
            assert change.kseq > before
            names = [c["name"] for c in (await kg.snapshot())["clients"]]
            assert names[-1] == "new"
            device = Device(json.loads((tmp_path / "new.sealmq.json").read_text()))
            await kg.hello(1, bytes(16))
            answer = await kg.answer(device.ask())
            device.accept(answer.packet)
            async with asyncio.timeout(WAIT_S):
                return [change, await anext(changes)]

    changes = asyncio.run(watch())
    assert changes[0].client is None
    assert changes[1].client == 9
    assert changes[1].kseq > changes[0].kseq


def test_a_change_between_snapshot_and_watch_is_not_lost(process: KgProcess) -> None:
    async def run() -> None:
        async with await KgClient.connect(process.site.layout.kg_socket) as kg:
            await kg.snapshot()
            await kg.rekey(["m1-temp"], 60)
            async with asyncio.timeout(WAIT_S):
                change = await anext(kg.changes())
            assert change.kseq == (await kg.snapshot())["kseq"]

    asyncio.run(run())


def test_a_wrong_file_is_refused_and_the_old_stays(process: KgProcess) -> None:
    before = call(process, ("snapshot",))[0]
    process.site.edit('m1-arm = ["m1-ctrl"]', 'm1-arm = ["m1-crtl"]')
    with pytest.raises(KgBad, match="m1-crtl") as caught:
        call(process, ("reload",))
    assert caught.value.hint == "did you mean m1-ctrl?"
    process.popen.send_signal(signal.SIGHUP)
    process.wait_said("sealmq.toml is not taken over")
    assert call(process, ("snapshot",))[0] == before
    process.site.edit('m1-arm = ["m1-crtl"]', 'm1-arm = ["m1-ctrl", "m2-temp"]')
    done, after = call(process, ("reload",), ("snapshot",))
    assert done.changed
    assert after["kseq"] == done.kseq
    assert len(after["records"]) == len(before["records"]) + 1


def test_one_that_is_started_again_goes_by_what_was_in_force_while_the_file_is_not_taken_over(
    site: MadeSite,
) -> None:
    key = site.kg_key
    with running(site) as process:
        (before,) = call(process, ("policy",))
    right = site.layout.config.read_text()
    wrong = right.replace('m1-arm = ["m1-ctrl"]', 'm1-arm = ["m1-crtl"]')
    other = right.replace(f'id = "{site.config.site.id.hex()}"', 'id = "0badcafe"')
    nowhere = right.replace(f'key_file = "{site.key_file}"', 'key_file = "~sealmq-nobody/key"')
    for text, why in (
        (wrong, "did you mean m1-ctrl"),
        (other, "sealmq.toml says site 0badcafe"),
        (nowhere, "knows no home folder"),
    ):
        assert text != right
        site.layout.config.write_text(text)
        first = KgProcess(site, key)
        assert first.popen.wait(WAIT_S) == 1, "whoever starts the site has to hear of it"
        with running(site, key, last_good=True) as process:
            process.wait_said(why)
            policy, known = call(process, ("policy",), ("in_force", ""))
            assert policy == known == before
            with pytest.raises(KgBad):
                call(process, ("reload",))
    # What was edited meanwhile, and is right, counts at once.
    after = right.replace('m1-arm = ["m1-ctrl"]', 'm1-arm = ["m1-ctrl", "m2-temp"]')
    site.layout.config.write_text(after)
    with running(site, key, last_good=True) as process:
        assert call(process, ("policy",)) == [after]
        process.wait_said("labels.m1-arm")


def test_a_path_to_nobody_s_home_is_refused_on_sighup(process: KgProcess) -> None:
    (before,) = call(process, ("policy",))
    key = str(process.site.key_file)
    process.site.edit(key, "~sealmq-nobody/site.key")
    process.popen.send_signal(signal.SIGHUP)
    process.wait_said("knows no home folder")
    process.site.edit("~sealmq-nobody/site.key", key)
    assert call(process, ("policy",)) == [before]


# Under pytest, as a defect is put in.
def test_a_defect_while_the_file_is_taken_over_ends_nothing(
    site: MadeSite, key: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(ops: Ops) -> Applied:
        raise ZeroDivisionError("the file says hush")

    async def seen(true: Callable[[], bool]) -> None:
        while not true():  # noqa: ASYNC110 - whatever is looked at
            await asyncio.sleep(0.01)

    async def run() -> str:
        with monkeypatch.context() as patch:
            patch.setattr(Ops, "reread", broken)
            serving = asyncio.create_task(Process(site.layout, key, last_good=True).run())
            await seen(lambda: site.layout.ready("kg").exists() or serving.done())
            caplog.clear()  # it began with one
            os.kill(os.getpid(), signal.SIGHUP)
            await seen(lambda: "ZeroDivisionError" in caplog.text or serving.done())
            assert not serving.done(), serving.exception()
        async with await KgClient.connect(site.layout.kg_socket) as kg:
            policy = await kg.policy()
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
        return policy

    with running(site, key):  # so that there is a policy in force
        pass
    assert asyncio.run(run()) == site.layout.config.read_text()
    assert "hush" not in caplog.text


def test_one_that_cannot_say_that_it_is_ready_serves_and_says_it_later(
    site: MadeSite, key: bytes
) -> None:
    ready = site.layout.ready("kg")
    ready.mkdir(parents=True)  # as on a full disk, nothing can be put there
    process = KgProcess(site, key)
    try:
        process.wait_said("run/kg/ready.json cannot be written")
        assert call(process, ("reload",))[0].changed is False
        ready.rmdir()
        process.wait_ready()
    finally:
        assert process.stop() == 0


def test_sighup_reloads_and_says_what_an_operator_should_know(process: KgProcess) -> None:
    process.site.edit('"m1-arm", "m2-arm"', '"m1-arm"')

    async def run() -> None:
        async with await KgClient.connect(process.site.layout.kg_socket) as kg:
            await kg.snapshot()
            changes = kg.changes()
            first = asyncio.ensure_future(anext(changes))
            await kg.status()
            process.popen.send_signal(signal.SIGHUP)
            async with asyncio.timeout(WAIT_S):
                await first
            await kg.status()

    asyncio.run(run())
    assert process.stop() == 0
    # what lies under m2-arm it still dominates through nothing else
    said = process.stderr.read_text()
    assert "new epochs: m2-temp 2, m2-ctrl 2, m2-arm 2\n" in said


# --- start and stop -------------------------------------------------------------------------------


def test_it_says_when_it_is_ready_and_cleans_up(site: MadeSite) -> None:
    layout = site.layout
    with running(site) as process:
        ready = json.loads(layout.ready("kg").read_text())
        assert ready["role"] == "kg"
        assert ready["pid"] == process.popen.pid
        assert ready["address"] == str(layout.kg_socket)
        assert ready["ready"] is True
        assert layout.ready("kg").stat().st_mode & 0o777 == 0o644
        assert process.stop() == 0
    assert not layout.ready("kg").exists()
    assert not layout.kg_socket.exists()
    left = sorted(p.name for p in layout.kg_db.parent.iterdir())
    assert [name for name in left if not name.startswith("reserve-")] == ["kg.db", "lock"]


def test_it_starts_on_what_a_killed_one_left(site: MadeSite) -> None:
    with running(site) as process:
        process.kill()
    assert site.layout.kg_socket.exists()
    with running(site) as process:
        assert len(call(process, ("clients",))[0]) == 8


@pytest.mark.parametrize(
    ("break_it", "what"),
    [
        ("key", "this key does not open"),
        ("toml", "not TOML"),
        ("store", "is missing"),
        ("suite", "its keys were made for suite ccm"),
        ("second", "another process has"),
    ],
)
def test_it_says_why_it_does_not_start(
    break_it: str, what: str, site: MadeSite, key: bytes
) -> None:
    if break_it == "toml":
        site.edit("[labels]", "[labels")
    elif break_it == "store":
        site.layout.kg_db.unlink()
    elif break_it == "suite":
        site.edit("m1-temp = []", 'm1-temp = { over = [], suite = "chacha" }')
    first = KgProcess(site, key).wait_ready() if break_it == "second" else None
    process = KgProcess(site, bytes(32) if break_it == "key" else key)
    assert process.popen.wait(WAIT_S) == 1
    said = process.stderr.read_text()
    assert what in said
    assert "Traceback" not in said
    if first is not None:
        assert call(first, ("status",))[0]["ok"] is True
        first.stop()
    else:
        assert not site.layout.ready("kg").exists()


def test_commands_find_a_busy_store_without_a_socket(
    process: KgProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    os.unlink(process.site.layout.kg_socket)
    add = ["client", "add", str(process.site.layout.root), "x", "--label", "top"]
    assert main([*add, "-o", str(tmp_path / "f")]) == 1
    assert "the key generator runs, but" in capsys.readouterr().err
    assert "x" not in process.site.config.clients


def test_a_site_deep_down(site: MadeSite, key: bytes, tmp_path: Path) -> None:
    """Paths of unix sockets are short (unix(7)); a site's need not be."""
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    site.layout.root.rename(deep / "site")
    moved = MadeSite(type(site.layout).of(deep / "site"), site.key_file)
    assert len(str(moved.layout.kg_socket)) > 120
    with running(moved) as process:
        assert len(call(process, ("clients",))[0]) == 8


def test_audit_names_what_was_done_and_no_secret(site: MadeSite) -> None:
    with running(site) as process:
        (enrolment,) = call(process, ("enrol", "monitor"))
        device = Device(enrolment)
        ops: list[tuple[Any, ...]] = [("hello", 1, bytes(16)), ("answer", device.ask())]
        _, answer, _ = call(process, *ops, ("lend", "m1-temp-sensor"))
        device.accept(answer.packet)
    text = "".join(p.read_text() for p in site.layout.audit("kg").iterdir())
    events = [json.loads(line)["event"] for line in text.splitlines()]
    assert events[0] == "start"
    assert events[-1] == "stop"
    assert {"client-enrolled", "client-provisioned", "client-lent"} <= set(events)
    assert "log-fault" not in events
    own: Any = device.ident.own
    said = text + process.stderr.read_text()
    for secret in (device.ident.ps, device.ident.km, own.r, own.r_bar):
        assert secret.hex() not in said


def test_time_under_the_links_suite_only(shared: KgProcess) -> None:
    with pytest.raises(KgBad, match="suite"):
        call(shared, ("time", 1, bytes(16), 2))


def test_denied_is_its_own_type(process: KgProcess) -> None:
    process.site.edit('monitor = { label = "monitor", kind', 'monitor = { label = "none", kind')
    with pytest.raises(KgDenied, match="disabled"):
        call(process, ("reload",), ("lend", "monitor"))
