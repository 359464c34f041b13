"""The mediator's shell around the core: real sockets on loopback, real links to a real broker."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core_world import TOPIC, Shell
from links_scene import Peer, Scripted, played, real_amqtt, real_mosquitto, so
from mediator_world import SENSOR, SIBLING
from sealmq.aead import make
from sealmq.broker.promises import BrokerTakes
from sealmq.families.conn import Conn
from sealmq.families.records import TopicLabel, TopicReset
from sealmq.mediator import mediator as mediator_module
from sealmq.mediator import willkeeper
from sealmq.mediator.clock import Clock
from sealmq.mediator.core import effects as fx
from sealmq.mediator.core.control import Control
from sealmq.mediator.core.delivery import Delivery
from sealmq.mediator.core.inbound import Inbound
from sealmq.mediator.core.keyring import Keyring
from sealmq.mediator.core.limits import QUEUE, UNDERWAY
from sealmq.mediator.core.session import Session
from sealmq.mediator.core.subscriptions import Subscriptions
from sealmq.mediator.events import Events, MissingExecutor
from sealmq.mediator.links import OwnLink, end_session
from sealmq.mediator.server import Channel
from sealmq.mqtt import Connack, Packet, Puback, Publish, Pubrel, build
from sealmq.store import StoreUnavailable
from sealmq_spec import provision
from sealmq_spec.const import CONTROL
from shell_scene import Client, Worker, worker

Story = Callable[[Worker], Awaitable[None]]


def told(folder: Path, story: Story, kind: str = "mosquitto") -> None:
    """Plays a story with a worker and a broker of this kind."""

    async def play(address: Any) -> None:
        async with worker(folder, address) as made:
            await story(made)

    with real_mosquitto(folder) if kind == "mosquitto" else real_amqtt() as address:
        played(play(replace(address, shared=kind == "mosquitto")))


async def hears(reader: Client, *payloads: bytes) -> None:
    """Waits for as many messages, which must be these."""
    await reader.until(lambda: len(reader.heard) >= len(payloads))
    assert reader.heard == list(payloads)


@pytest.mark.parametrize("kind", ["mosquitto", "amqtt"])
def test_what_one_client_publishes_another_one_reads_at_each_qos(kind: str, tmp_path: Path) -> None:
    async def story(made: Worker) -> None:
        sensor, sibling = await made.client(SENSOR), await made.client(SIBLING)
        await sibling.subscribe("machine/#", 2)
        sensor.publish(b"zero")
        await hears(sibling, b"zero")
        sensor.publish(b"one", 1, 7)
        assert await sensor.came("puback") == [Puback(7)]
        await hears(sibling, b"zero", b"one")
        sensor.publish(b"two", 2, 8)
        await sensor.came("pubcomp")
        await hears(sibling, b"zero", b"one", b"two")
        assert [packet.qos for packet in sibling.got if isinstance(packet, Publish)] == [0, 1, 2]

    told(tmp_path, story, kind)


def test_an_effect_that_nothing_executes_stops_the_mediator_at_its_start() -> None:
    async def scene() -> None:
        events = Events(Shell().site, Clock())
        every = {kind: lambda *words: None for kind in fx.ALL}
        events.executed_by(every)
        for kind in fx.ALL:
            with pytest.raises(MissingExecutor, match=kind.__name__):
                events.executed_by({k: v for k, v in every.items() if k is not kind})
        with pytest.raises(MissingExecutor, match="Opened"):
            events.executed_by({**every, fx.Opened: lambda *words: None})

    asyncio.run(scene())


def test_a_fault_in_one_client_s_effect_ends_that_client_and_nobody_else(tmp_path: Path) -> None:
    async def story(made: Worker) -> None:
        sensor, sibling = await made.client(SENSOR), await made.client(SIBLING)
        before = made.mediator.events._executors[fx.Forward]

        def faulty(session: Any, effect: Any) -> None:
            if session.client.number == SENSOR:
                raise KeyError("a defect")
            before(session, effect)

        made.mediator.events._executors[fx.Forward] = faulty  # type: ignore[index]
        sensor.publish(b"lost", 1, 1)
        await sensor.ended()
        sibling.publish(b"here", 1, 2)
        await sibling.came("puback")

    told(tmp_path, story)


def test_while_the_broker_takes_no_more_who_publishes_is_not_read_and_others_are(
    tmp_path: Path,
) -> None:
    async def story(made: Worker) -> None:
        sensor, sibling = await made.client(SENSOR), await made.client(SIBLING)
        pressure = made.mediator._forwarding.pressure
        pressure.change(True)
        sensor.publish(b"one", 1, 1)
        await sensor.came("puback")
        sensor.send(build.pingreq())
        for _ in range(3):
            await sibling.ping()
        assert sensor.got == []
        pressure.change(False)
        await sensor.came("pingresp")

    told(tmp_path, story)


def test_packets_for_a_client_in_one_turn_of_the_loop_are_one_write() -> None:
    class Client:
        def __init__(self) -> None:
            self.written: list[bytes] = []
            self.write = self.written.append

        def settled(self) -> None:
            pass

    async def scene() -> None:
        shell = Shell()
        events = Events(shell.site, Clock())
        events.executed_by({kind: lambda *words: None for kind in fx.ALL})
        session = Session(shell.site, events.agenda, "192.0.2.7")
        client: Any = Client()
        events.peers[session] = client
        for n in range(5):
            events.run(session.write, b"%d" % n)
        assert client.written == []
        await asyncio.sleep(0)
        assert client.written == [b"01234"]

    asyncio.run(scene())


@pytest.mark.parametrize("clean", [True, False])
def test_a_newer_connection_takes_a_session_over(clean: bool, tmp_path: Path) -> None:
    async def story(made: Worker) -> None:
        older = await made.client(SIBLING, clean=clean)
        await older.subscribe("machine/#", 1)
        newer = Client(made, SIBLING, "id")
        newer.session = older.session
        newer.opener = older.opener
        await newer.connect(clean=clean)
        await older.ended()
        sensor = await made.client(SENSOR)
        sensor.publish(b"for whom", 1, 1)
        await sensor.came("puback")
        if clean:
            await newer.ping()
            assert newer.heard == []
        else:
            await hears(newer, b"for whom")
        assert older.heard == []

    told(tmp_path, story)


def test_a_will_comes_after_what_its_client_published_before(tmp_path: Path) -> None:
    async def story(made: Worker) -> None:
        sibling = await made.client(SIBLING)
        await sibling.subscribe("machine/#", 1)
        sensor = Client(made, SENSOR, "id")
        await sensor.connect(will=sensor.will(b"gone"))
        for n in range(20):
            sensor.publish(b"%d" % n, 1, n + 1)
        sensor.hang_up()
        await hears(sibling, *(b"%d" % n for n in range(20)), b"gone")

    told(tmp_path, story)


def test_a_will_on_a_topic_that_was_forgotten_meanwhile_labels_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As any publish does; it comes, though the store fails the first time."""
    monkeypatch.setattr(willkeeper, "GRACE_S", 0.01)

    async def story(made: Worker) -> None:
        sensor, sibling = Client(made, SENSOR, "s"), await made.client(SIBLING)
        made.clients.append(sensor)
        await sensor.connect(will=sensor.will(b"gone"))
        await sibling.subscribe("machine/#", 1)
        policy = made.mediator.policy
        await policy.commit([TopicReset(TOPIC)])
        followed: list[str] = []

        def follow() -> None:
            task = asyncio.current_task()
            followed.append("" if task is None else task.get_name())

        monkeypatch.setattr(policy, "follow", follow)
        engine = made.mediator.site.engine
        topic = engine.connection(engine.who("sensor", SENSOR))
        assert topic.publish(TOPIC, 1, False, 1, 1).label == "low"
        store: Any = made.mediator._wills._store
        commit = store.commit
        failed: list[Any] = []

        async def fails_once(records: Any, *words: Any) -> Any:
            if isinstance(records[0], TopicLabel) and not failed:
                failed.append(records)
                raise StoreUnavailable("database is locked")
            return await commit(records, *words)

        store.commit = fails_once
        sensor.cut()
        await hears(sibling, b"gone")
        assert len(failed) == 1
        got = topic.publish(TOPIC, 1, False, 1, 1)
        assert (got.allow, got.label, got.rule) == (True, None, "labels.publish.same-label")
        assert f"will of {SENSOR}" in followed, "so subscriptions hear of it at once"

    told(tmp_path, story)


def test_the_publish_link_alone_may_fall_and_nobody_s_session_ends(tmp_path: Path) -> None:
    async def story(made: Worker) -> None:
        sibling, sensor = await made.client(SIBLING), await made.client(SENSOR)
        await sibling.subscribe("machine/#", 1)
        link = made.mediator._forwarding.link._link
        assert link is not None
        link.give_up("as if its connection had broken")
        for n in range(5):
            sensor.publish(b"%d" % n, 1, n + 1)
        await sensor.came("puback", 5)
        await hears(sibling, *(b"%d" % n for n in range(5)))
        assert not sensor.over
        assert not sibling.over

    told(tmp_path, story)


def test_the_fall_of_the_live_link_ends_clean_readers_and_no_publisher(tmp_path: Path) -> None:
    async def story(made: Worker) -> None:
        reader, sensor = await made.client(SIBLING), await made.client(SENSOR)
        kept = await made.client(SIBLING, "kept", clean=False)
        for each in (reader, kept):
            await each.subscribe("machine/#", 1)
        made.mediator._live._give_up("as if its connection had broken")
        await reader.ended()
        sensor.publish(b"goes on", 1, 1)
        await sensor.came("puback")
        await hears(kept, b"goes on")
        assert not sensor.over

    told(tmp_path, story)


@pytest.mark.parametrize("falls_at", [Publish, Pubrel])
def test_qos_2_is_owed_until_pubcomp_and_published_again_where_the_link_falls_before(
    falls_at: type[Packet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its publisher, and by the journal; GATEWAY.md G1, gateway/DESIGN.md."""
    owed: list[tuple[str, str, int]] = []

    async def takes(address: object) -> BrokerTakes:
        return BrokerTakes()

    async def story() -> None:
        async with Scripted(tmp_path) as broker, worker(tmp_path, broker.address) as made:
            sensor = await made.client(SENSOR)
            segments = made.mediator.journal.all()
            fallen: list[Packet] = []

            def does(packet: Packet, peer: Peer) -> bool:
                link = peer.client_id.rpartition("/")[2]
                if getattr(packet, "qos", 2) != 2 or not isinstance(packet, Publish | Pubrel):
                    return False
                owed.append((link, type(packet).__name__, segments[-1].open))
                assert sensor.got == [], "its publisher has no PUBREC"
                if type(packet) is falls_at and not fallen:
                    fallen.append(packet)
                    peer.kill()
                    return True
                return False

            broker.does = does
            broker.came.clear()
            sensor.publish(b"two", 2, 7)
            await sensor.came("pubrec")
            assert segments[-1].open == 0
            await sensor.came("pubcomp")
            messages = [packet for packet in broker.published() if packet.qos == 2]
            assert len({(packet.topic, packet.payload) for packet in messages}) == 1

    monkeypatch.setattr(mediator_module, "try_broker", takes)
    played(story())
    first = [("publish", "Publish", 1), ("publish", "Pubrel", 1)][: 1 + (falls_at is Pubrel)]
    assert owed == [*first, ("messages", "Publish", 1), ("messages", "Pubrel", 1)]


KINDS = Session, Channel, Delivery, Subscriptions, Inbound, Control, Conn, OwnLink


def alive() -> list[object]:
    """All living objects that belong to sessions, without empty ones."""
    found = [one for one in gc.get_objects() if isinstance(one, KINDS)]
    return [one for one in found if not hasattr(one, "__dict__") or vars(one)]


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def leaves(made: Worker, client: Client) -> None:
    client.send(build.disconnect())


async def is_lost(made: Worker, client: Client) -> None:
    client.cut()


async def is_taken_over(made: Worker, client: Client) -> None:
    newer = Client(made, SIBLING, client.client_id)
    newer.session, newer.opener = client.session, client.opener
    await newer.connect(clean=True)


async def breaks_mqtt(made: Worker, client: Client) -> None:
    client.send(build.connack(False, 0))


async def forges(made: Worker, client: Client) -> None:
    client.send(build.publish(TOPIC.encode(), bytes(80), 1, packet_id=9))


async def is_disabled(made: Worker, client: Client) -> None:
    rows = made.world.snapshot()
    for row in rows["clients"]:
        row["disabled"] = row["number"] == SIBLING
    made.mediator.take_ring(Keyring(made.world.ring.site, made.world.ring.inst, rows))


async def is_too_slow(made: Worker, client: Client) -> None:
    session = list(made.mediator.events.peers)[-1]
    made.mediator.events.run(session.close, "too slow")


async def loses_its_link(made: Worker, client: Client) -> None:
    session = list(made.mediator.events.peers)[-1]
    own = made.mediator._links._links[session].own
    assert own is not None
    own._link.give_up("as if its connection had broken")


ENDS = (leaves, is_lost, is_taken_over, breaks_mqtt, forges, is_disabled, is_too_slow,
        loses_its_link)  # fmt: skip


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("end", ENDS)
def test_a_session_that_has_ended_is_freed_at_once(
    end: Callable[[Worker, Client], Awaitable[None]], clean: bool, tmp_path: Path
) -> None:
    """However it ends: nothing of it waits for the garbage collector."""

    async def story(made: Worker) -> None:
        sensor = await made.client(SENSOR)
        before = len(alive())
        sibling = Client(made, SIBLING, "id")
        await sibling.connect(clean=clean, will=sibling.will(b"gone"))
        await sibling.subscribe("machine/#", 1)
        await sibling.subscribe("$share/group/other/#", 1)
        sibling.publish(b"own", 2, 7, "machine/new")
        await sibling.came("pubcomp")
        sensor.publish(b"one", 1, 7)
        await sensor.came("puback")
        await sibling.until(lambda: len(sibling.heard) > 1)
        assert len(alive()) - before == len(KINDS)
        await end(made, sibling)
        await sibling.ended()
        for client in made.clients:
            if client.session is sibling.session:
                client.cut()
        await so(lambda: len(alive()) == before)

    told(tmp_path, story)


@pytest.mark.usefixtures("uncollected")
def test_a_session_that_ends_amid_all_that_it_asked_is_freed_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(made: Worker) -> None:
        before = len(alive())
        for turns in range(40):
            client = Client(made, SIBLING, "id")
            begin = client.begin if turns % 3 == 2 else client.connect
            await begin(clean=turns % 2 == 0, will=client.will(b"gone"))
            wanted = [f"{turns}/+", "machine/#", "$share/group/other/#"]
            asked = [(client.session.token(filt, 1)[0], 1) for filt in wanted]
            client.send(build.subscribe(1, asked))
            client.publish(b"new", 1, 7, f"{turns}/new")
            client.publish(b"new", 2, 8, f"{turns}/new")
            client.send(build.unsubscribe(2, [client.session.token("machine/#", 1)[0]]))
            for _ in range(turns):
                await asyncio.sleep(0)
            client.cut()
        await so(lambda: len(alive()) == before)
        sensor = await made.client(SENSOR)
        sensor.publish(b"nobody reads this", 1, 7)
        await sensor.came("puback")

    told(tmp_path, story)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.usefixtures("uncollected")
def test_a_session_that_ends_in_the_turn_in_which_it_asked_is_freed_at_once(
    tmp_path: Path,
) -> None:
    """Its question was cancelled before the first step of its task."""

    async def story(made: Worker) -> None:
        mediator = made.mediator
        before = len(alive())
        await made.client(SIBLING)
        session = list(mediator.events.peers)[-1]

        def asks_and_goes(session: Session) -> None:
            mediator._links.snapshot(session, fx.Snapshot(0, "machine/#"))
            session.close("gone")

        mediator.events.run(asks_and_goes, session)
        del session
        await so(lambda: len(alive()) == before)

    told(tmp_path, story)


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("what", ["nothing", "no MQTT", "a forgery", "a request", "a stranger"])
def test_a_session_that_never_opened_is_freed_at_once(what: str, tmp_path: Path) -> None:
    async def story(made: Worker) -> None:
        before = len(alive())
        client = Client(made, SIBLING, "id")
        password = bytes(client.session.begin_connect(False))
        if what == "a stranger":
            client.session.ident.client = 99
        sent = {"nothing": b"", "no MQTT": b"GET / HTTP/1.1\r\n\r\n"}.get(what)
        if sent is None:
            tag = b"" if what == "a request" else bytes(22)
            sent = build.connect("id", username="sealmq1", password=password + tag)
        _, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(sent)
        await so(lambda: len(alive()) > before)
        if what in ("nothing", "a request"):
            writer.transport.abort()
        await so(lambda: len(alive()) == before)

    told(tmp_path, story)


@pytest.mark.usefixtures("uncollected")
def test_a_stranger_who_leaves_before_the_key_generator_answers_is_freed_at_once(
    tmp_path: Path,
) -> None:
    """Whoever reaches the port can do that, as often as there are ports."""

    async def story(made: Worker) -> None:
        before = len(alive())
        stranger = Client(made, SIBLING, "id")
        ident = stranger.session.ident
        ident.gen = 0
        head = bytes(stranger.session.begin_connect(False))
        words = ident.site, bytes(32), ident.suite, ident.client, 0, 1, bytes(16), ident.mediator
        request = bytes(provision.ask(make, *words))
        await stranger.opens()
        stranger.send(build.connect("id", username="sealmq1", password=head))
        stranger.send(build.publish(CONTROL, request))
        await stranger.came("connack")
        await so(lambda: bool(made.mediator._questions.tasks))
        stranger.send(build.connack(False, 0))  # no MQTT of a client's: its session ends
        await stranger.ended()
        del stranger
        await so(lambda: len(alive()) == before)

    told(tmp_path, story)


@pytest.mark.usefixtures("uncollected")
def test_a_session_that_ends_while_it_waits_for_the_journal_is_freed_at_once(
    tmp_path: Path,
) -> None:
    async def story(made: Worker) -> None:
        journal = made.mediator.journal
        before = len(alive())
        sibling = await made.client(SIBLING)
        journal.most = 40_000
        sibling.publish(bytes(12_000), 1, 7)
        await sibling.came("puback")
        sibling.publish(b"waits", 1, 8)
        await sibling.ping()
        assert journal._wanted
        sibling.send(build.connack(False, 0))
        await sibling.ended()
        await so(lambda: len(alive()) == before)
        assert not journal._wanted

    told(tmp_path, story)


def test_a_client_whose_part_of_the_journal_is_full_is_answered_once_there_is_room(
    tmp_path: Path,
) -> None:
    async def story(made: Worker) -> None:
        journal = made.mediator.journal
        sensor = await made.client(SENSOR)
        journal.most = 40_000
        sensor.publish(bytes(12_000), 1, 7)
        await sensor.came("puback")
        sensor.publish(b"waits", 1, 8)
        await sensor.ping()
        assert journal._wanted
        assert sensor.got == []
        journal.most = 1 << 20
        assert await sensor.came("puback") == [Puback(8)]

    told(tmp_path, story)


def test_who_sends_more_at_once_than_may_be_under_way_is_answered_and_read_on(
    tmp_path: Path,
) -> None:
    """Nothing more was ever read, and keep alive ended nothing."""

    async def story(made: Worker) -> None:
        sensor = await made.client(SENSOR)
        count = UNDERWAY + 2 * QUEUE
        for number in range(count):
            sensor.publish(b"much", 1, number + 1)
        await sensor.came("puback", count)
        await sensor.ping()

    told(tmp_path, story)


def test_a_session_that_the_broker_has_begun_anew_without_a_word_gets_its_filters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker had forgotten it, and its answer to CONNECT came too late."""
    opens = OwnLink.open

    async def late(self: OwnLink, *words: Any, **more: Any) -> bool:
        await opens(self, *words, **more)
        self.close()
        raise fx.BrokerAway("no answer")

    async def story(made: Worker) -> None:
        sensor = await made.client(SENSOR)
        kept = await made.client(SIBLING, "kept", clean=False)
        await kept.subscribe("machine/#", 1)
        await kept.close()
        name = made.mediator.site.broker_id(SIBLING, "kept")
        await end_session(made.mediator._address, name)
        monkeypatch.setattr(OwnLink, "open", late)
        await kept.begin(clean=False)
        [refused] = await kept.came("connack")
        assert refused == Connack(False, 3)
        await kept.ended()
        monkeypatch.setattr(OwnLink, "open", opens)
        await kept.connect(clean=False)
        sensor.publish(b"for both", 1, 7)
        await hears(kept, b"for both")

    told(tmp_path, story)
