"""Several workers: real processes and sockets; their mediators are stand-ins (standin.py)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import sealmq_forks
from sealmq import garbage
from sealmq.kglink import Answer
from sealmq.mediator import worker as worker_module
from sealmq.mediator import workers as workers_module
from sealmq.mediator.acceptor import Acceptor
from sealmq.mediator.frames import Gone
from sealmq.mediator.journal_file import folder_of, gather, gathered, pack, read
from sealmq.mediator.owner import Owner
from sealmq.mediator.pool import Pool
from sealmq.mediator.worker import WorkerEnd
from sealmq.mediator.workers import WorkerProcess
from sealmq.mqtt import build
from sealmq.site.config import load, loads
from sealmq.site.layout import Layout, prepare
from sealmq.site.model import Attribute
from sealmq.store import COUNTING, Store
from sealmq.strangers import Strangers
from sealmq_spec.const import USER
from sealmq_spec.control import proof_head

HERE = Path(__file__).parent
_TRIES, _PAUSE_S = 1500, 0.02
SNAPSHOT: dict[str, Any] = {
    "kseq": 3, "labels": [], "clients": [], "records": [], "manifests": [],
}  # fmt: skip


class Keys:
    """Instance numbers and a snapshot, without a key generator."""

    def __init__(self) -> None:
        self.site, self.snapshot = b"\x01\x02\x03\x04", dict(SNAPSHOT)
        self._inst = 100

    async def draw(self) -> int:
        self._inst += 1
        return self._inst

    async def watch(self, kg: Any, connected: Any) -> AsyncIterator[bool]:
        connected(kg)
        await kg.changed.wait()
        yield True
        await asyncio.Event().wait()


class Kg:
    """A key generator that is told what is gone by, and says once that keys have changed."""

    lost = False

    def __init__(self, text: str) -> None:
        self.told: list[tuple[int, str]] = []
        self.changed = asyncio.Event()
        self.text = text

    async def in_force(self, known: str) -> str | None:
        return None if known == loads(self.text).digest else self.text

    async def took(self, kseq: int, policy: str) -> None:
        self.told.append((kseq, policy))


class Heard:
    """An audit log in memory."""

    def __init__(self) -> None:
        self.records: list[tuple[str, dict[str, Any]]] = []

    def write(self, event: str, **fields: Any) -> None:
        self.records.append((event, fields))


class Scene:
    """An owner, its workers, and where clients connect."""

    def __init__(self, layout: Layout, count: int) -> None:
        config = load(layout.config)
        self.layout = layout
        self.store = Store.open(layout.mediator_db)
        self.keys = Keys()
        self.audit, self.kg = Heard(), Kg(config.text)
        self.owner = Owner(layout, config, self.store, self.keys, self.audit)  # type: ignore[arg-type]
        insts = [10 + n for n in range(count)]
        self.pool = Pool(
            self.owner, count, insts[::-1], {"host": "127.0.0.1"}, self.audit, "standin"  # type: ignore[arg-type]
        )  # fmt: skip
        self.acceptor = Acceptor(Strangers(16), self.pool.give)
        self.port = 0

    async def begin(self) -> None:
        await self.pool.start()
        await until(lambda: all(w.away is None for w in self.pool.workers.values()))
        _, self.port = await self.acceptor.listen("127.0.0.1", 0)
        self.tending = asyncio.create_task(self.pool.run())

    async def end(self) -> None:
        self.acceptor.close()
        await self.pool.stop()
        self.tending.cancel()
        await asyncio.gather(self.tending, return_exceptions=True)
        self.store.close()

    async def client(self, number: int) -> Client:
        client = Client(number)
        await client.connect(self.port)
        return client


class Client:
    """Says lines after its CONNECT, and reads the answers."""

    def __init__(self, number: int) -> None:
        self._number = number

    async def connect(self, port: int) -> None:
        self.reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._writer.write(connect_of(self._number))

    async def ask(self, line: str) -> str:
        self.tell(line)
        return await self.read()

    def tell(self, line: str) -> None:
        self._writer.write(line.encode() + b"\n")

    async def read(self) -> str:
        async with asyncio.timeout(30):
            line = await self.reader.readline()
        if not line:
            raise ConnectionResetError
        return line.decode().rstrip("\n")


def connect_of(number: int) -> bytes:
    """A CONNECT in quarantine with a claim of this client's number."""
    proof = proof_head(1, 0, 0, number, 0, bytes(8), 0, 0)
    return build.connect("x", username=USER.decode(), password=proof)


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    paths = (str(HERE), *filter(None, [os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setattr(subprocess, "Popen", sealmq_forks.popen)
    (tmp_path / "sealmq.toml").write_text('[site]\nname = "s"\nid = "01020304"\n')
    layout = Layout.open(tmp_path)
    prepare(layout)
    return layout


@contextlib.asynccontextmanager
async def scene(layout: Layout, count: int = 2) -> AsyncIterator[Scene]:
    it = Scene(layout, count)
    await it.begin()
    try:
        yield it
    finally:
        await it.end()


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(_TRIES):
        if holds():
            return
        await asyncio.sleep(_PAUSE_S)
    raise AssertionError("what was waited for did not come")


def run(story: Any) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


def test_what_comes_while_a_worker_begins_is_done_in_its_order(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it took a configuration over, keys that came then were followed by older ones."""
    monkeypatch.setattr(worker_module, "garbage", SimpleNamespace(started=lambda: None))

    async def story() -> None:
        kseqs: list[int] = []
        reloads, goes_on = asyncio.Event(), asyncio.Event()

        async def reload(config: Any) -> None:
            reloads.set()
            await goes_on.wait()

        async def built(*words: Any) -> Any:
            return SimpleNamespace(
                take_ring=lambda ring: kseqs.append(ring.kseq),
                reload=reload,
                run=asyncio.Event().wait,
            )

        calls, ours = socket.socketpair()
        hand, theirs = socket.socketpair()
        nobody: Any = None
        end = WorkerEnd(layout, {}, calls, hand, nobody)
        monkeypatch.setattr(end, "_built", built)
        await end._peer.open()
        told = end._peer._handlers

        def keys(kseq: int) -> None:
            told["ring"](b"\x01\x02\x03\x04", 1, SNAPSHOT | {"kseq": kseq}, [])

        keys(1)
        await told["config"](layout.config.read_text())
        keys(2)
        begins = asyncio.create_task(end._begin())
        await reloads.wait()
        keys(3)
        goes_on.set()
        await begins
        keys(4)
        assert kseqs == [1, 2, 3, 4]
        asyncio.get_running_loop().remove_reader(hand)
        assert end._running is not None
        end._running.cancel()
        end._peer.close()
        for sock in (ours, hand, theirs):
            sock.close()

    run(story())


def test_link_slots_are_kept_until_keys_are_there_that_have_them(layout: Layout) -> None:
    """A fetch may fail, or bring what the key generator had before."""
    kseq = itertools.count(3)
    told: list[Any] = []
    rings: list[Any] = []

    class Asked(Kg):
        async def answer(self, packet: bytes) -> Answer:
            return Answer(packet, 5, next(kseq), 1, [{"gen": 1}])

    class Fetching(Keys):
        async def watch(self, kg: Any, connected: Any) -> AsyncIterator[bool]:
            for self.snapshot["kseq"] in (3, 4):
                yield True

    class One:
        index = 0

        async def links(self, client: int, links: list[Any]) -> None:
            told.append((client, links))

        async def ring(self, keys: Any, fresh: Any) -> None:
            rings.append((keys.snapshot["kseq"], fresh))

    async def story() -> None:
        keys, audit = cast(Any, Fetching()), cast(Any, Heard())
        config = load(layout.config)
        with contextlib.closing(Store.open(layout.mediator_db)) as store:
            owner = Owner(layout, config, store, keys, audit)
            owner.kg = cast(Any, Asked(config.text))
            owner.workers = [cast(Any, One())]
            assert (await owner.answer(b"")).kseq == 3
            assert told == owner.fresh == [], "the keys that are here have it"
            assert (await owner.answer(b"")).kseq == 4
            assert told == owner.fresh == [(5, [{"gen": 1}])]
            await owner._watch_keys()
            assert rings == [(3, told), (4, [])]
            assert owner.fresh == []

    run(story())


def test_a_question_to_a_worker_that_has_ended_is_no_line_of_the_log() -> None:
    """Whoever asked is cancelled in that moment: asyncio said that nobody had looked at its end."""

    async def gone(*words: Any) -> None:
        raise Gone("it has ended")

    async def story() -> None:
        loop = asyncio.get_running_loop()
        unseen: list[Any] = []
        loop.set_exception_handler(lambda loop, about: unseen.append(about))
        worker = WorkerProcess.__new__(WorkerProcess)
        worker.serving, worker._reloading = True, 0
        worker._child = cast(Any, SimpleNamespace(alive=True, exited=loop.create_future()))
        worker._peer = cast(Any, SimpleNamespace(call=gone))
        for turns in range(5):
            asks = asyncio.create_task(worker.ask("ping"))
            for _ in range(turns):
                await asyncio.sleep(0)
            asks.cancel()
            await asyncio.gather(asks, return_exceptions=True)
        gc.collect()
        assert unseen == []

    run(story())


def test_a_client_comes_to_the_worker_of_its_number_each_time(layout: Layout) -> None:
    async def story() -> None:
        async with scene(layout) as it:
            for number in (1, 2, 3, 4, 2, 1):
                client = await it.client(number)
                assert await client.ask("number") == str(number % 2)

    run(story())


def test_what_came_with_connect_is_read_by_the_worker(layout: Layout) -> None:
    async def story() -> None:
        async with scene(layout) as it:
            reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
            whole = connect_of(5) + b"number\ninst\n"
            for byte in range(len(whole)):
                writer.write(whole[byte : byte + 1])
                await writer.drain()
            assert (await reader.readline()).strip() == b"1"
            assert (await reader.readline()).strip() == b"11"
            writer.close()

    run(story())


def test_the_first_of_two_workers_labels_a_topic(layout: Layout) -> None:
    async def story() -> None:
        async with scene(layout) as it:
            one, two = await it.client(2), await it.client(3)
            answers = await asyncio.gather(one.ask("label t a"), two.ask("label t b"))
            (label, fresh), (other, again) = (answer.split() for answer in answers)
            assert label == other
            assert {fresh, again} == {"True", "False"}
            assert await one.ask("row t") == await two.ask("row t") == label

    run(story())


def test_a_commands_answer_comes_after_all_workers_have_applied_it(layout: Layout) -> None:
    async def story() -> None:
        async with scene(layout) as it:
            one, two = await it.client(2), await it.client(3)
            for n in range(20):
                assert await one.ask(f"command k {n}") == "done"
                assert await two.ask("row k") == str(n)
            assert "part k" in await two.ask("heard")
            assert "part k" not in await one.ask("heard")

    run(story())


def test_a_worker_that_is_stopped_is_ended_then_the_command_is_answered(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "ANSWER_S", 1.0)

    async def story() -> None:
        async with scene(layout) as it:
            one, two = await it.client(2), await it.client(3)
            pid = int(await two.ask("pid"))
            os.kill(pid, signal.SIGSTOP)
            assert await one.ask("command k 1") == "done"
            assert not _lives(pid)
            with pytest.raises(ConnectionResetError):
                await two.read()
            assert [(e, f["number"]) for e, f in it.audit.records] == [("worker-ended", 1)]

    run(story())


def test_a_worker_that_is_stopped_before_it_takes_a_configuration_over_has_no_more_time_for_it(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that disables a client writes sealmq.toml as well."""
    monkeypatch.setattr(workers_module, "ANSWER_S", 1.0)
    monkeypatch.setattr(workers_module, "RELOAD_S", 10_000.0)

    async def story() -> None:
        async with scene(layout) as it:
            one, two = await it.client(2), await it.client(3)
            pid = int(await two.ask("pid"))
            os.kill(pid, signal.SIGSTOP)
            taken = asyncio.create_task(it.pool.workers[1].config(it.owner.config))
            assert await one.ask("command k 1") == "done"
            await taken
            assert not _lives(pid)

    run(story())


def test_a_worker_that_takes_a_configuration_over_has_the_time_for_it(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "ANSWER_S", 0.5)

    async def story() -> None:
        async with scene(layout) as it:
            one, two = await it.client(2), await it.client(3)
            pid = int(await two.ask("pid"))
            await two.ask("slow 2")
            taken = asyncio.create_task(it.pool.workers[1].config(it.owner.config))
            assert await one.ask("command k 1") == "done"
            await taken
            assert _lives(pid)
            assert await two.ask("row k") == "1"

    run(story())


def test_nothing_more_goes_out_that_the_system_held_for_a_killed_workers_client(
    layout: Layout,
) -> None:
    async def story() -> None:
        async with scene(layout) as it:
            slow, other = await it.client(3), await it.client(5)
            pid = int(await slow.ask("pid"))
            slow.tell("flood")
            for _ in range(_TRIES):
                if await other.ask("flooded") == "True":
                    break
                await asyncio.sleep(_PAUSE_S)
            os.kill(pid, signal.SIGKILL)
            await until(lambda: not _lives(pid))
            # Else all that the system held came, and then the end.
            with pytest.raises(ConnectionResetError):
                await slow.reader.read(-1)

    run(story())


def test_a_killed_workers_clients_come_back_and_others_notice_nothing(layout: Layout) -> None:
    async def story() -> None:
        async with scene(layout) as it:
            one, two = await it.client(2), await it.client(3)
            assert await two.ask("lock k") == "True"
            inst = await two.ask("inst")
            os.kill(int(await two.ask("pid")), signal.SIGKILL)
            with pytest.raises(ConnectionResetError):
                await two.read()
            # What it had locked is free, and what others do meanwhile it knows when it is back.
            assert await one.ask("lock k") in ("True", "False")
            assert await one.ask("command k after") == "done"
            while True:
                two = await it.client(3)
                try:
                    if await two.ask("number") == "1":
                        break
                except (ConnectionError, UnicodeDecodeError):
                    await asyncio.sleep(0.05)
            assert await two.ask("row k") == "after"
            assert await two.ask("inst") not in (inst, await one.ask("inst"))

    run(story())


def test_a_row_locked_at_one_worker_is_waited_for_at_the_other(layout: Layout) -> None:
    async def story() -> None:
        async with scene(layout) as it:
            one, two = await it.client(2), await it.client(3)
            assert await one.ask("lock k") == "True"
            waiting = asyncio.create_task(two.ask("lock k"))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            assert await one.ask("free k") == "done"
            assert await waiting == "False"

    run(story())


def test_a_retained_copy_that_passed_is_told_to_the_others(layout: Layout) -> None:
    async def story() -> None:
        async with scene(layout) as it:
            one, two = await it.client(2), await it.client(3)
            await one.ask("passed a/b")
            for _ in range(_TRIES):
                if "passed a/b 5 6 (3, 4)" in await two.ask("heard"):
                    break
                await asyncio.sleep(_PAUSE_S)
            assert "passed a/b 5 6 (3, 4),took a/b 7 8" in await two.ask("heard")
            assert "passed" not in await one.ask("heard")

    run(story())


def test_a_worker_is_told_whose_live_links_are_there_and_what_came_over_them(
    layout: Layout,
) -> None:
    """Also one that begins later; one that is killed has none."""

    async def story() -> None:
        async with scene(layout, 3) as it:
            clients = [await it.client(n) for n in (3, 4, 5)]

            async def hears(client: Client, what: str) -> None:
                for _ in range(_TRIES):
                    if what in (await client.ask("heard")).split(","):
                        return
                    await asyncio.sleep(_PAUSE_S)
                raise AssertionError(f"{what}: {await client.ask('heard')}")

            await clients[1].ask("live True")
            await until_heard(clients[0], "live 1 True")
            await until_heard(clients[2], "live 1 True")
            await clients[1].ask("marked 2 77")
            await until_heard(clients[2], "marked 1 77")
            assert "marked" not in await clients[0].ask("heard")
            for killed in (2, 1):
                os.kill(int(await clients[killed].ask("pid")), signal.SIGKILL)
                await until(lambda: it.pool.workers[killed].away is not None)  # noqa: B023
                await until(lambda: it.pool.workers[killed].away is None)  # noqa: B023
                if killed == 2:
                    await until_heard(await it.client(5), "live 1 True")
            await until_heard(clients[0], "live 1 False")

    run(story())


def test_attributes_reach_all_workers_and_one_that_begins(layout: Layout) -> None:
    file = layout.root / "contract.toml"
    file.write_text('[bob]\nvalue = "signed"\nuntil = 2099-01-01T00:00:00Z\n')
    table = f'[attributes.contract]\nsource = "file"\npath = "{file}"\n'
    layout.config.write_text(layout.config.read_text() + table)

    async def story() -> None:
        async with scene(layout) as it:
            clients = [await it.client(2), await it.client(3)]
            sources = it.owner.sources
            try:
                await sources.take(it.owner.config.attributes)
                for client in clients:
                    await until_heard(client, "('contract','bob','signed',4070908800000)")
                os.kill(int(await clients[1].ask("pid")), signal.SIGKILL)
                await until(lambda: it.pool.workers[1].away is not None)
                await until(lambda: it.pool.workers[1].away is None)
                late = await it.client(3)
                await until_heard(late, "('contract','bob','signed',4070908800000)")
                file.write_text("")
                await until(lambda: not sources.rows)
                for client in (clients[0], late):
                    await until_heard(client, "('contract','bob',None,0)")
            finally:
                await sources.close()

    run(story())


def test_what_is_derived_at_one_worker_reaches_all_and_is_lost_with_it(layout: Layout) -> None:
    async def story() -> None:
        async with scene(layout) as it:
            one, two = await it.client(2), await it.client(3)
            await it.owner.sources.take({"room": Attribute("events", of="owner", family="labels")})
            far = 1 << 60
            assert await one.ask(f"derived bob 1005 {far}") == f"[('room','bob','1005',{far})]"
            assert await two.ask(f"derived eve 1003 {far}") == f"[('room','eve','1003',{far})]"
            for client in (one, two):
                for name, room in ("bob", 1005), ("eve", 1003):
                    await until_heard(client, f"('room','{name}','{room}',{far})")
            os.kill(int(await two.ask("pid")), signal.SIGKILL)
            await until_heard(one, "('room','eve',None,0)")
            await until(lambda: it.pool.workers[1].away is None)
            late = await it.client(3)
            heard = await late.ask("heard")
            assert f"('room','bob','1005',{far})" in heard, "it begins with what the others know"
            assert "eve" not in heard
            # Another name for the same: who comes to the owner last has said it.
            await late.ask(f"derived bob 1009 {far}")
            await until_heard(one, f"('room','bob','1009',{far})")
            assert await one.ask("derived bob - 0") == "[('room','bob',None,0)]"
            assert it.owner.sources.rows == []

    run(story())


async def until_heard(client: Client, words: str) -> None:
    for _ in range(_TRIES):
        if words in await client.ask("heard"):
            return
        await asyncio.sleep(_PAUSE_S)
    raise AssertionError(f"not heard: {words}")


def test_counts_are_written_for_their_own_worker_and_one_that_comes_after_a_kill_is_blind(
    layout: Layout,
) -> None:
    async def story() -> None:
        async with scene(layout) as it:
            one, two = await it.client(2), await it.client(3)
            assert await one.ask("count k") == "done"
            assert await two.ask("row k") == "-", "nobody else reads it"
            assert await two.ask("blind") == "0"
            os.kill(int(await two.ask("pid")), signal.SIGKILL)
            await until(lambda: it.pool.workers[1].away is not None)
            await until(lambda: it.pool.workers[1].away is None)
            late = await it.client(3)
            assert int(await late.ask("blind")) > 0
            assert await one.ask("blind") == "0"
            blind = it.owner.counted.blind_ms
            await it.pool.stop()
            assert it.pool.whole
            await it.owner.counted.end(it.pool.whole)
            assert it.store.cache(COUNTING) == str(blind).encode(), "the next run knows it, too"

    run(story())


@pytest.mark.parametrize("how", ["unwritten", "killed"])
def test_workers_that_have_not_written_what_they_counted_leave_no_whole_store(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "unwritten":
        monkeypatch.setenv("SEALMQ_TEST_UNWRITTEN", "1")

    async def story() -> None:
        async with scene(layout) as it:
            if how == "killed":
                os.kill(it.pool.workers[1].pid, signal.SIGKILL)
            await it.pool.stop()
            assert not it.pool.whole

    run(story())


def test_new_keys_and_policy_are_confirmed_when_all_workers_go_by_them(layout: Layout) -> None:
    async def story() -> None:
        async with scene(layout) as it:
            clients = [await it.client(2), await it.client(3)]
            it.keys.snapshot["kseq"] = 4
            kg = it.kg
            kg.text += '[policy]\nenforce = false\norder = ["labels", "allowlist"]\n'
            it.owner.kg = kg  # type: ignore[assignment]
            running = asyncio.create_task(it.owner.run())
            kg.changed.set()
            for _ in range(_TRIES):
                if kg.told and kg.told[-1][0] == 4 and kg.told[-1][1] == loads(kg.text).digest:
                    break
                await asyncio.sleep(_PAUSE_S)
            for client in clients:
                heard = await client.ask("heard")
                assert "kseq 4" in heard
                assert "enforce False" in heard
            # One that begins anew goes by the same.
            os.kill(int(await clients[1].ask("pid")), signal.SIGKILL)
            await until(lambda: it.pool.workers[1].away is not None)
            await until(lambda: it.pool.workers[1].away is None)
            late = await it.client(3)
            assert await late.ask("begun") == "4 False"
            # Not by families that count from the mediator's next start: the others do not either.
            assert await late.ask("order") == await clients[0].ask("order") == "labels"
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run(story())


def test_a_file_that_one_worker_refuses_counts_nowhere_and_is_not_tried_again_by_itself(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that begins anew goes by what is in force, and so do attributes."""
    monkeypatch.setenv("STANDIN_REFUSES", "1")
    file = layout.root / "contract.toml"
    file.write_text('[bob]\nvalue = "signed"\nuntil = 2099-01-01T00:00:00Z\n')
    table = f'[attributes.contract]\nsource = "file"\npath = "{file}"\n'
    plain = layout.config.read_text()
    layout.config.write_text(plain + table)

    async def story() -> None:
        async with scene(layout) as it:
            sources, kg = it.owner.sources, it.kg
            await sources.take(it.owner.config.attributes)
            kg.text = plain + "[policy]\nenforce = false\n"
            it.owner.kg = kg  # type: ignore[assignment]
            running = asyncio.create_task(it.owner.run())

            def refused() -> int:
                return [event for event, _ in it.audit.records].count("config-refused")

            try:
                await until(lambda: refused() == 1)
                first = await it.client(2)
                assert "enforce False" in await first.ask("heard")
                await until_heard(first, "enforce True")
                [row] = sources.rows
                assert row.value == "signed"
                os.kill(it.pool.workers[1].pid, signal.SIGKILL)
                await until(lambda: it.pool.workers[1].away is not None)
                await until(lambda: it.pool.workers[1].away is None)
                assert await (await it.client(3)).ask("begun") == "3 True"
                it.keys.snapshot["kseq"] = 4
                kg.changed.set()
                await until(lambda: bool(kg.told) and kg.told[-1][0] == 4)
                await until(lambda: not it.owner._reload.is_set())
                assert refused() == 1
                # A signal has it tried once more; another text is taken over.
                it.owner.hang_up()
                await until(lambda: refused() == 2)
                kg.text = plain + "# mended\n"
                it.owner.hang_up()
                await until(lambda: kg.told[-1][1] == loads(kg.text).digest)
                assert refused() == 2
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await sources.close()

    run(story())


def test_no_descriptor_stays_of_connections_that_were_handed_over(layout: Layout) -> None:
    async def story() -> None:
        async with scene(layout) as it:
            asks = await it.client(2)
            gc.collect()  # sockets of tests before
            before = int(await asks.ask("fds")), len(os.listdir("/proc/self/fd"))
            for _ in range(50):
                client = await it.client(4)
                assert await client.ask("number") == "0"
                client._writer.close()
            for _ in range(200):
                if (int(await asks.ask("fds")), len(os.listdir("/proc/self/fd"))) == before:
                    return
                await asyncio.sleep(0.02)
            assert (int(await asks.ask("fds")), len(os.listdir("/proc/self/fd"))) == before

    run(story())


def test_a_worker_s_garbage_collector_begins_when_all_is_there_and_leaves_that_alone(
    layout: Layout,
) -> None:
    async def story() -> None:
        async with scene(layout) as it:
            client = await it.client(2)
            seldom = garbage.THRESHOLDS
            assert await client.ask("garbage") == f"False {(True, True, seldom)}"

    run(story())


def test_workers_die_with_their_owner_even_stopped_ones(layout: Layout) -> None:
    script = f"""
import asyncio, sys
sys.path[:0] = {[str(HERE), str(Path(sealmq_forks.__file__).parent)]!r}
from test_workers import Layout, Scene
async def story():
    it = Scene(Layout.open({str(layout.root)!r}), 2)
    await it.begin()
    print(*(worker.pid for worker in it.pool.workers.values()), flush=True)
    await asyncio.sleep(60)
asyncio.run(story())
"""

    async def story() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        pids = [int(pid) for pid in (await process.stdout.readline()).split()]
        assert len(pids) == 2
        os.kill(pids[0], signal.SIGSTOP)
        process.kill()
        await process.wait()
        try:
            await until(lambda: not any(_lives(pid) for pid in pids))
        finally:
            for pid in filter(_lives, pids):
                os.kill(pid, signal.SIGKILL)

    run(story())


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_worker_that_cannot_begin_is_said_in_its_own_words(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_FAILS", "1")

    async def story() -> None:
        it = Scene(layout, 2)
        try:
            with pytest.raises(Exception, match="worker 1 ended with exit code 1"):
                await it.pool.start()
        finally:
            await it.pool.stop()
            it.store.close()

    run(story())


def test_journals_of_before_go_to_worker_0_in_the_order_they_were_written(tmp_path: Path) -> None:
    def write(folder: Path, number: int, ms: int) -> None:
        folder.mkdir(exist_ok=True)
        entry = pack(ms, b"t", str(ms).encode(), 1, False)
        (folder / f"{number:08d}.seg").write_bytes(entry)

    for number, ms in ((1, 10), (2, 40)):
        write(folder_of(tmp_path, 0), number, ms)
    for number, ms in ((1, 20), (2, 30)):
        write(folder_of(tmp_path, 1), number, ms)
    gathered(tmp_path, 2)
    assert not gather(tmp_path, 2)
    assert gather(tmp_path, 1)
    found = sorted(folder_of(tmp_path, 0).glob("*.seg"))
    assert [entry.ms for path in found for entry in read(path)] == [10, 20, 30, 40]
    assert not list(folder_of(tmp_path, 1).glob("*.seg"))
