"""A border's parts: what the mediator lets its clients do, and what passes, once, over a kill."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client_peer import Peer
from mediator_world import NOW_MS, PANEL, SENSOR, World
from sealmq.aead import make
from sealmq.border import process
from sealmq.border import spool as spool_module
from sealmq.border.ends import Plain, Publishing
from sealmq.border.passage import Passage
from sealmq.border.process import Crossing
from sealmq.border.spool import Message, Spool
from sealmq.bridge.line import LineLost
from sealmq.bridge.passing import head
from sealmq.client import ClientError
from sealmq.client.seal import Link, seal_inner, seal_passed
from sealmq.client.values import How
from sealmq.client.values import Message as Delivered
from sealmq.doctor import checkup
from sealmq.families.engine import Engine
from sealmq.families.labels.family import Labels
from sealmq.families.owners.family import Owners
from sealmq.families.purposes.family import PurposesFamily
from sealmq.mediator.core.wrap import Opened, for_broker, open_m2, verify_m2
from sealmq.order import Order
from sealmq.run import proc, status
from sealmq.run import ready as run_files
from sealmq.run.ready import Ready
from sealmq.site.check import parse
from sealmq.site.layout import Layout
from sealmq.site.model import Border
from sealmq_spec.const import CLEAR, LIVE, RETAINED, WILL
from sealmq_spec.envelope import get_m1
from sealmq_spec.errors import Malformed, Replay, SealError, Stale, Unauthentic
from sealmq_spec.identity import Identity
from sealmq_spec.origin import message_id
from sealmq_spec.reader import Reader

SITE = f"""
[site]
name = "north"
id = "00000001"
[labels]
plant = ["machine"]
machine = ["part"]
part = []
shared = []
[clients]
mill = {{ label = "machine" }}
boss = {{ label = "plant" }}
[peers.south]
fingerprint = "{"ab" * 32}"
listen = "127.0.0.1:8884"
export = ["shared"]
import = ["orders"]
"""
OUTLET = """
[borders.outlet]
from = "machine"
to = "shared"
topics = ["mill/+", "state"]
declassify = true
"""
INLET = """
[borders.inlet]
from = "orders@south"
to = "machine"
topics = ["@south/orders/#"]
declassify = true
"""


def engine(text: str = SITE + OUTLET + INLET) -> Engine:
    made = Engine([Labels()])
    made.load(parse(text), [])
    return made


# --- what the mediator lets its clients do -------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "filt", "good"),
    [
        ("outlet.in", "mill/+", True),
        ("outlet.in", "state", True),
        ("outlet.in", "mill/1", False),
        ("outlet.in", "mill/#", False),
        ("outlet.in", "#", False),
        ("outlet.in", "@sm1/#", False),
        ("outlet.in", "$share/g/mill/+", False),
        ("outlet.in", "@south/orders/#", False),
        ("outlet.out", "mill/+", False),
        ("outlet.out", "border/outlet/#", False),
        ("inlet.in", "@south/orders/#", True),
        ("inlet.in", "@south/#", False),
        ("inlet.out", "@south/orders/#", False),
    ],
)
def test_a_borders_client_subscribes_to_what_is_listed_alone(
    client: str, filt: str, good: bool
) -> None:
    made = engine()
    got = made.connection(made.who(client)).subscribe(filt, 1, NOW_MS)
    assert got.allow is good
    assert got.rule == f"labels.subscribe.{'border' if good else 'not-listed'}"


@pytest.mark.parametrize(
    ("client", "topic", "label", "good"),
    [
        ("outlet.in", "mill/1", "machine", True),
        ("outlet.in", "mill/1", "part", False),
        ("outlet.in", "mill/1/secret", "machine", False),
        ("outlet.in", "border/inlet/orders/1", "machine", False),
        ("outlet.out", "mill/1", "shared", False),
        ("inlet.in", "@south/orders/1", "orders@south", True),
        ("inlet.in", "@south/secrets", "orders@south", False),
        ("inlet.in", "mill/1", "machine", False),
    ],
)
def test_a_borders_client_gets_what_is_listed_under_its_own_label_alone(
    client: str, topic: str, label: str, good: bool
) -> None:
    """Not what its label dominates, though it has the keys of that."""
    made = engine()
    got = made.connection(made.who(client)).deliver(topic, label, LIVE, NOW_MS, 9)
    assert got.allow is good
    assert got.rule == f"labels.deliver.{'border' if good else 'not-listed'}"


@pytest.mark.parametrize(
    ("client", "topic", "rule"),
    [
        ("outlet.out", "border/outlet/mill/1", "first"),
        ("outlet.out", "border/outlet", "border"),
        ("outlet.out", "border/inlet/mill/1", "border"),
        ("outlet.out", "border/other/mill/1", "border"),
        ("outlet.out", "mill/1", "border"),
        ("outlet.in", "mill/1", "border"),
        ("outlet.in", "border/outlet/mill/1", "border"),
        ("inlet.out", "border/inlet/orders/1", "first"),
        ("inlet.out", "@south/orders/1", "reserved"),
        ("mill", "border/outlet/mill/1", "border"),
        ("mill", "border/other/mill/1", "first"),
        ("mill", "mill/1", "first"),
    ],
)
def test_a_border_publishes_in_its_place_and_nobody_else_there(
    client: str, topic: str, rule: str
) -> None:
    made = engine()
    got = made.connection(made.who(client)).publish(topic, 1, False, 9, NOW_MS)
    assert got.rule == f"labels.publish.{rule}"
    assert got.allow is (rule == "first")


def test_a_reload_changes_what_a_border_may() -> None:
    made = engine()
    reads, mill = (made.connection(made.who(n)) for n in ("outlet.in", "mill"))
    assert reads.deliver("state", "machine", LIVE, NOW_MS, 9).allow
    assert not mill.publish("border/outlet/x", 1, False, 9, NOW_MS).allow
    made.load(parse(SITE + OUTLET.replace(', "state"', "") + INLET), [])
    assert not reads.deliver("state", "machine", LIVE, NOW_MS, 9).allow
    made.load(parse(SITE + INLET), [])
    assert mill.publish("border/outlet/x", 1, False, 9, NOW_MS).allow


# --- one m1, whatever boot session sends it -------------------------------------------------------

TOPIC, NOW = b"border/outlet/mill/1", NOW_MS // 1000


class Across(World):
    """The sensor is a border's client."""

    def snapshot(self) -> dict[str, Any]:
        found = super().snapshot()
        found["clients"][0]["kind"] = "border"
        return found


def sent(world: World, m1: bytes, number: int = SENSOR, flags: int = 2, boot: int = 2) -> Opened:
    session = world.session(number, boot, os.urandom(8))
    link = world.link(session)
    _, m2 = seal_passed(Link(session), TOPIC, m1, flags, 0)
    verified = verify_m2(link, TOPIC, m2, flags)
    return open_m2(link, world.ring, world.ring.clients[number], verified, flags, NOW)


def held(
    world: World,
    number: int = SENSOR,
    kind: int = LIVE,
    life: int = 0,
    age: int = 0,
    text: bytes = b"21.5",
) -> bytes:
    """As a border seals it in its first boot session."""
    return seal_inner(world.session(number), TOPIC, text, kind, life, NOW - age)


def test_a_message_that_is_sent_again_after_a_kill_is_read_once() -> None:
    world = Across()
    m1, order = held(world), Order(world.ring.inst)
    ident = Identity(world.site, 8, 1, os.urandom(32), "reader", 1)
    ident.gen, ident.own = 1, world.low
    reader, label = Reader(ident, make), world.ring.labels[world.low.label]
    read: list[tuple[bytes, int] | None] = []
    for boot in (2, 1, 3):
        opened = sent(world, m1, boot=boot)
        m3 = for_broker(
            world.ring, order, label, opened.body, opened.start, None, opened.own, opened.how,
            TOPIC, NOW_MS,
        )  # fmt: skip
        try:
            one = reader.open(TOPIC, bytearray(m3), NOW_MS)
            read.append((one.payload, one.sender))
        except Replay:
            read.append(None)
    assert read == [(b"21.5", SENSOR), None, None]


def test_nobody_but_a_border_sends_what_an_earlier_boot_session_has_sealed() -> None:
    world = Across()
    with pytest.raises(Unauthentic):
        sent(world, held(world, PANEL), PANEL)
    assert sent(world, held(world)).kind == LIVE


def test_a_border_sends_nothing_of_another_sender() -> None:
    world = Across()
    world.low = world.high
    with pytest.raises(Unauthentic):
        sent(world, held(world, PANEL))


@pytest.mark.parametrize(
    ("more", "flags", "error"),
    [
        ({"age": 61}, 2, Stale),
        ({"age": 129, "life": 7}, 2, Stale),
        ({"age": -61, "life": 255}, 2, Stale),
        ({"kind": RETAINED}, 2, Malformed),
        ({"kind": WILL}, 2, Malformed),
        ({"kind": LIVE}, 3, Malformed),
        ({"kind": CLEAR, "text": b""}, 2, Malformed),
        ({"kind": CLEAR}, 3, Malformed),
        ({"kind": CLEAR, "text": b"", "age": 61}, 3, Stale),
    ],
)
def test_what_a_border_sends_is_judged(
    more: dict[str, Any], flags: int, error: type[SealError]
) -> None:
    world = Across()
    with pytest.raises(error):
        sent(world, held(world, **more), flags=flags)
    assert sent(world, held(world, age=128, life=7)).life == 7, "its age is that of the first one"
    assert sent(world, held(world, kind=CLEAR, text=b""), flags=3).kind == CLEAR


# --- what passes ----------------------------------------------------------------------------------

BORDER = Border("outlet", "machine", "shared", ("mill/+", "state"), True)
IMPORT = Border("inlet", "orders@south", "machine", ("@south/#",), True)
LABEL, OUT = 7, 6


def incoming(
    ctr: int = 3, sender: int = 5, kind: int = LIVE, untimed: bool = False, t_pub: int = NOW
) -> bytes:
    low = kind | (8 if untimed else 0)
    made = bytes((0x11, 16 + low)) + (7).to_bytes(3, "big") + sender.to_bytes(3, "big")
    made += (9).to_bytes(3, "big") + b"saltsalt" + ctr.to_bytes(3, "big")
    return made + (0 if untimed else t_pub).to_bytes(4, "big") + b"\5" + bytes(20)


def delivered(topic: str = "mill/1", text: bytes = b"21.5", label: int = LABEL, **more: Any) -> Any:
    plain = Plain(text)
    plain.m1 = incoming(**more)
    how = How.RETAINED if more.get("kind") == CLEAR else How.LIVE
    return Delivered(topic, plain, f"#{label}", "#5", 0, how, 1, label_number=label)


class Run:
    """A border's process; a new one on the same folder is the one after a kill."""

    def __init__(self, folder: Path, border: Border = BORDER, most: int = 100) -> None:
        self.said: list[dict[str, Any]] = []
        self.sealed: list[tuple[bytes, bytes, int, int, int]] = []
        self.away = False
        self.spool = Spool(folder / "border.db", self._lost, most)
        self.passage = Passage(border, {5: "mill"}, self.spool, self._seal, self._audit)

    def _lost(self, one: Message, why: str) -> None:
        self.passage.lost(one, why)

    def _seal(self, topic: bytes, payload: bytes, kind: int, life: int, t_pub: int) -> bytes:
        if self.away:
            raise ClientError("no boot session")
        self.sealed.append((topic, payload, kind, life, t_pub))
        return incoming(len(self.sealed), OUT, kind) + b"sealed %d" % len(self.sealed)

    def _audit(self, event: str, **fields: str) -> None:
        self.said.append({"event": event, **fields})

    def take(self, *messages: Any) -> None:
        for message in messages:
            self.passage.take(message, LABEL)

    def out(self) -> list[tuple[str, bytes]]:
        return [(one.message.topic, one.message.m1) for one in self.passage.waiting(100)]

    def named(self) -> list[str]:
        return [row["reason"] for row in self.said if row["event"] == "border-dropped"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    made.spool.close()


def test_what_passes_is_sealed_with_the_time_and_life_of_the_first_one(run: Run) -> None:
    run.take(delivered(), delivered("state", b"on", ctr=4, kind=RETAINED))
    assert run.sealed == [
        (b"border/outlet/mill/1", b"21.5", LIVE, 5, NOW),
        (b"border/outlet/state", b"on", RETAINED, 5, NOW),
    ]
    [one, two] = run.passage.waiting(100)
    assert (one.message.retain, two.message.retain) == (False, True)


def test_a_clear_passes_once_with_the_time_and_life_of_the_first_one_and_is_told(run: Run) -> None:
    clear = delivered("state", b"", ctr=5, kind=CLEAR)
    run.take(delivered("state", b"on", ctr=4, kind=RETAINED), clear, clear)
    assert run.sealed[1:] == [(b"border/outlet/state", b"", CLEAR, 5, NOW)]
    [one, two] = run.passage.waiting(100)
    assert (one.message.retain, two.message.retain) == (True, True)
    assert [row.get("detail") for row in run.said] == [None, "clear"]
    assert run.said[1]["digest"] == message_id(clear.payload.m1).hex()
    run.take(delivered("mill/1/secret", b"", ctr=6, kind=CLEAR))
    run.take(delivered("state", b"words", ctr=7, kind=CLEAR))
    run.take(delivered(ctr=99), delivered("state", b"", ctr=8, kind=CLEAR))
    assert [why.partition(":")[0] for why in run.named()] == [
        "not listed",
        "a clear has nothing inside",
        "late",
    ]


def test_what_is_retained_last_is_the_newest_also_where_clients_clocks_differ(run: Run) -> None:
    """Of one sender, which a border is, readers take what has the latest time as the newest."""
    run.take(
        delivered("state", b"on", kind=RETAINED),
        delivered("state", b"", sender=6, kind=CLEAR, t_pub=NOW - 60),
        delivered("state", b"old", sender=7, kind=RETAINED, t_pub=NOW - 61),
        delivered("mill/1", b"other", sender=7, ctr=4, kind=RETAINED, t_pub=NOW - 2),
        delivered("state", b"live", sender=7, ctr=5, t_pub=NOW - 2),
    )
    assert [row[4] for row in run.sealed] == [NOW, NOW, NOW - 61, NOW - 2, NOW - 2]


def test_what_was_retained_before_a_kill_is_not_newer_than_what_is_retained_after_it(
    tmp_path: Path,
) -> None:
    """A run ends with each client that is added under the label, too."""
    first = Run(tmp_path)
    first.take(delivered("state", b"on", kind=RETAINED))
    first.spool.close()
    second = Run(tmp_path)
    second.take(delivered("state", b"", sender=6, kind=CLEAR, t_pub=NOW - 60))
    assert [row[4] for row in second.sealed] == [NOW]
    second.spool.close()


def test_so_many_topics_times_of_what_is_retained_are_known(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was published first goes first."""
    monkeypatch.setattr(spool_module, "PLACES", 2)
    for n, at in enumerate((NOW, NOW - 9, NOW - 5, NOW - 4), 4):
        run.take(delivered(f"mill/{n}", kind=RETAINED, ctr=n, t_pub=at))
    known = [run.spool.newest(f"border/outlet/mill/{n}") for n in range(4, 8)]
    assert known == [NOW, 0, 0, NOW - 4]


def test_a_border_that_is_killed_goes_on_in_its_order(tmp_path: Path) -> None:
    """What it sealed in the same second before, and sends again, is older: by boot and counter."""

    async def sealed(peer: Peer) -> bytes:
        client = Publishing.at(peer.enrolment(), ("127.0.0.1", peer.port), tmp_path / "a.boot")
        async with client:
            return client.seal(b"border/a/t", b"x", RETAINED, 5, NOW)

    async def story() -> list[int]:
        async with Peer() as peer:
            found = [await sealed(peer) for _ in range(3)]
            assert not peer.errors
            return [get_m1(m1, 0, len(m1))[5] for m1 in found]

    assert asyncio.run(story()) == [1, 2, 3]
    assert (tmp_path / "a.boot").read_text() == "3\n"


def test_what_has_been_cleared_is_not_retained_again_after_a_kill(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker has the clear, and its answer about what was there before is lost by the kill."""
    run.take(
        delivered("state", b"on", ctr=4, kind=RETAINED), delivered("state", b"", ctr=5, kind=CLEAR)
    )
    crossing = Crossing.__new__(Crossing)
    for name, value in {
        "_passage": run.passage, "_spool": run.spool, "_publishing": None, "_news": asyncio.Event(),
        "_audit": SimpleNamespace(synced=lambda: asyncio.sleep(0)),
    }.items():  # fmt: skip
        monkeypatch.setattr(crossing, name, value, raising=False)
    answered: list[bytes] = []
    came = asyncio.Event()

    async def deliver(_: Any, topic: str, m1: bytes, retain: bool) -> None:
        if head(m1).kind == RETAINED:
            await asyncio.Event().wait()
        answered.append(m1)
        came.set()

    monkeypatch.setattr(process, "deliver", deliver)

    async def killed() -> None:
        work = asyncio.create_task(crossing._publish())
        await came.wait()
        await asyncio.sleep(0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    asyncio.run(killed())
    assert head(answered[0]).kind == CLEAR
    again = [head(m1).kind for _, m1 in run.out()]
    assert again == [RETAINED, CLEAR], "the clear comes again after it"


def test_a_kill_at_any_moment_neither_loses_nor_doubles(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.take(delivered())
    [before] = first.out()
    # Killed before it was acknowledged: it comes again, and what lies there is what was sealed.
    second = Run(tmp_path)
    second.take(delivered())
    assert second.out() == [before]
    assert second.sealed == []
    # Killed after the broker had it, before that was noted: the same one is sent again.
    [waits] = second.passage.waiting(100)
    second.passage.ended(waits, "")
    third = Run(tmp_path)
    third.take(delivered())
    assert third.out() == []
    for one in (first, second, third):
        one.spool.close()


def test_the_note_that_a_message_came_is_written_with_it_or_not_at_all(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(*_: Any) -> None:
        raise KeyboardInterrupt  # as a kill between the two

    monkeypatch.setattr(run.spool, "_note", torn)
    with pytest.raises(KeyboardInterrupt):
        run.take(delivered())
    again = Run(tmp_path)
    assert again.out() == []
    again.take(delivered())
    assert len(again.out()) == 1
    again.spool.close()


def test_what_cannot_be_sealed_just_now_is_not_taken(run: Run) -> None:
    run.away = True
    with pytest.raises(ClientError):
        run.take(delivered())
    run.away = False
    run.take(delivered())
    assert len(run.out()) == 1


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (delivered("mill/1/secret"), "not listed"),
        (delivered("border/inlet/x"), "not listed"),
        (delivered(label=8), "label"),
        (delivered(kind=WILL, untimed=True), "a will"),
        (delivered(f"mill/{'x' * 1015}"), ""),
    ],
)
def test_what_does_not_pass_is_named_and_never_sealed(run: Run, message: Any, why: str) -> None:
    run.take(message)
    [said] = run.named()
    assert said.startswith(why)
    assert (run.out(), run.sealed) == ([], [])


def test_the_loop_of_two_borders_ends_where_it_would_begin_again(tmp_path: Path) -> None:
    """Whatever their tables list: as if sealmq.toml had not been checked."""
    for border, topic, why in (
        (
            Border("outlet", "machine", "shared", ("border/#",), True),
            "border/inlet/border/outlet/mill/1",
            "loop",
        ),
        (IMPORT, "@south/border/outlet/border/inlet/mill/1", "hops"),
    ):
        run = Run(tmp_path, border)
        run.take(delivered(topic))
        assert [said.partition(":")[0] for said in run.named()] == [why]
        assert run.sealed == []
        run.spool.close()


def test_each_crossing_is_told_before_its_message_leaves_and_nothing_of_what_is_inside(
    run: Run,
) -> None:
    message = delivered(text=b"a secret")
    run.take(message)
    assert run.said == []
    assert len(run.out()) == 1
    [said] = run.said
    assert said == {
        "event": "border-crossed",
        "border": "outlet",
        "topic": "mill/1",
        "label": "machine",
        "label_out": "shared",
        "sender": "mill",
        "digest": message_id(message.payload.m1).hex(),
    }
    assert head(message.payload.m1).sender == 5


def test_of_a_message_from_a_peer_no_client_of_this_site_is_the_sender(tmp_path: Path) -> None:
    run = Run(tmp_path, IMPORT)
    run.take(delivered("@south/orders/1"))
    assert run.out()[0][0] == "border/inlet/orders/1"
    assert (run.said[0]["sender"], run.said[0]["topic"]) == ("#5", "@south/orders/1")
    run.spool.close()


def test_nothing_of_a_message_lies_on_disk_in_clear(run: Run, tmp_path: Path) -> None:
    run.take(delivered(text=b"very secret indeed"))
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"sealed 1" in held
    assert b"secret" not in held


def test_what_waits_is_judged_by_the_table_of_the_day_on_which_it_leaves(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.take(delivered(), delivered("state", ctr=4))
    first.spool.close()
    second = Run(tmp_path, Border("outlet", "machine", "shared", ("state",), True))
    assert [topic for topic, _ in second.out()] == ["border/outlet/state"]
    assert second.named() == ["not listed: no filter of this border matches its topic"]
    second.spool.close()


def test_what_waits_is_bounded_and_what_goes_is_named(tmp_path: Path) -> None:
    run = Run(tmp_path, most=2)
    run.take(*(delivered(ctr=n) for n in (1, 2, 3)))
    assert len(run.out()) == 2
    [said] = run.named()
    assert "no more is kept" in said
    run.spool.close()
    assert run.passage.dropped.total() == 1


def test_what_the_broker_will_never_take_is_named(run: Run) -> None:
    run.take(delivered())
    [one] = run.passage.waiting(1)
    run.passage.ended(one, "the topic has another label")
    assert run.named() == ["the topic has another label"]
    assert run.spool.count == 0


# --- what other families say ----------------------------------------------------------------------

PURPOSES = """
[families.purposes.tree]
care = []
[families.purposes.reserve]
"mill/#" = { aip = ["care"] }
"""


def judged(family: Any, more: str) -> Engine:
    made = Engine([Labels(), family])
    order = f'[policy]\norder = ["labels", "{family.name}"]\n'
    made.load(parse(SITE + OUTLET + order + more), [])
    return made


def got(made: Engine, client: str, filt: str, topic: str, label: str) -> bool:
    """Whether a client that subscribes gets a message."""
    conn = made.connection(made.who(client))
    asked = conn.subscribe(filt, 1, NOW_MS)
    if asked.allow:
        conn.subscribed(asked, 1, NOW_MS)
    return asked.allow and conn.deliver(topic, label, LIVE, NOW_MS, 9).allow


def test_a_border_reads_for_a_purpose_and_what_it_makes_is_for_none_until_the_site_says_so() -> (
    None
):
    reads = ("outlet.in", "mill/+", "mill/1", "machine")
    made = judged(PurposesFamily(), PURPOSES)
    assert not got(made, *reads)
    said = '[families.purposes.presubscribe]\n"outlet.in" = { "mill/+" = "care" }\n'
    made = judged(PurposesFamily(), PURPOSES + said)
    assert got(made, *reads)
    bridge = '"shared.to.south" = { "#" = "care" }\n'
    made = judged(PurposesFamily(), PURPOSES + said + bridge)
    there = ("shared.to.south", "#", "border/outlet/mill/1", "shared")
    assert not got(made, *there), "what the topic was for does not cross with it"
    made = judged(
        PurposesFamily(), PURPOSES + '"border/outlet/#" = { aip = ["care"] }\n' + said + bridge
    )
    assert got(made, *there)


def test_a_border_receives_of_an_owner_what_that_lets_it() -> None:
    made = judged(Owners(), "")
    assert not got(made, "outlet.in", "mill/+", "mill/1", "machine")


# --- a run of the process -------------------------------------------------------------------------


def test_a_message_that_cannot_be_sealed_ends_the_run_and_not_the_connection_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that connects again has marked it in its windows: it would be lost, unnamed."""
    crossing = Crossing.__new__(Crossing)
    monkeypatch.setattr(crossing, "_passage", run.passage, raising=False)
    monkeypatch.setattr(crossing, "_reading", SimpleNamespace(label=LABEL), raising=False)
    run.away = True
    with pytest.raises(LineLost) as ended:
        crossing._take(delivered())
    assert not isinstance(ended.value, ClientError | SealError), "those only connect again"


def test_what_was_dropped_on_its_way_is_counted_once(tmp_path: Path) -> None:
    run = Run(tmp_path, most=1)
    run.take(delivered(ctr=1))
    [one] = run.passage.waiting(1)
    run.take(delivered(ctr=2))
    run.passage.ended(one, "")
    assert (run.passage.crossed, run.passage.dropped.total(), run.spool.count) == (0, 1, 1)
    run.spool.close()


@pytest.mark.parametrize(
    ("pid", "line", "ready", "note"),
    [
        (0, "up", True, "a: up"),
        (0, "its client is disabled", False, "a: its client is disabled"),
        (1, "up", False, "beginning"),
    ],
)
def test_a_border_is_ready_when_its_own_process_says_that_its_line_is_up(
    tmp_path: Path, pid: int, line: str, ready: bool, note: str
) -> None:
    """The word of one that was killed says nothing of the next."""
    layout, own = Layout.of(tmp_path), os.getpid()
    layout.run_of("border-a").mkdir(parents=True)
    run_files.write(layout, Ready("border-a", own, "border-a", True), user="me")
    told = {"pid": pid or own, "lines": {"a": {"line": line}}}
    (layout.run_of("border-a") / "lines.json").write_text(json.dumps(told))
    ours = {"pid": own, "start": proc.start_of(own)}
    found = asyncio.run(status._one(layout, "border-a", ours, True))
    assert (found.ready, found.note) == (ready, note)


@pytest.mark.parametrize("since_ms", [1000, 10**30, -1, "x", None])
def test_status_and_doctor_say_since_when_a_line_is_down(
    tmp_path: Path, since_ms: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, own = Layout.of(tmp_path), os.getpid()
    layout.run_of("bridge").mkdir(parents=True)
    run_files.write(layout, Ready("bridge", own, "bridge", True), user="me")
    south = {"line": "refused\x1b", "since_ms": since_ms}
    rows = {"north": {"line": "up", "since_ms": 1}, "south": south}
    said = {"pid": own, "start": proc.start_of(own), "lines": rows}
    (layout.run_of("bridge") / "lines.json").write_text(json.dumps(said))
    monkeypatch.setattr("time.monotonic_ns", lambda: 61_000_000_000)
    monkeypatch.setattr("time.time", lambda: 1_800_000_060.0)
    ours = {"pid": own, "start": proc.start_of(own)}
    found = asyncio.run(status._one(layout, "bridge", ours, True))
    at = "2027-01-15T08:00:00Z"
    known = since_ms == 1000
    note = f" (not up since {at})" if known else ""
    assert (found.ready, found.note) == (True, f"north: up; south: refused\\x1b{note}")
    up = checkup._line_to(layout, "north")
    assert (up.name, up.ok, up.reason) == (
        "the line to north", True, "up, since 2027-01-15T07:59:59Z",
    )  # fmt: skip
    down = checkup._line_to(layout, "south")
    assert (down.ok, down.reason) == (None, "refused\x1b" + (f", since {at}" if known else ""))
    nobody = checkup._line_to(layout, "east")
    assert (nobody.ok, nobody.reason) == (None, "beginning")
