"""What a bridge keeps: what it may be killed at, what it acknowledges when, and how long it knows
what has come."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.crossing_world import BOILER, LABEL, Site, World, crossing_of, m1, site_of
from bridge.test_bridge_parts import message, topics
from sealmq.bridge import spool as spools
from sealmq.bridge.crossing import OK, Crossing
from sealmq.bridge.judging import Plain
from sealmq.bridge.spool import GROUP_S, HOLD_BYTES, HOLD_S, WIDTH, Spool, Told, Waiting
from sealmq.bridge.spooled import BYTES, MESSAGES
from sealmq.bridge.traffic import Import
from sealmq_spec.errors import Unavailable


class Later:
    """Functions that are to be called, as an event loop would."""

    def __init__(self) -> None:
        self.plans: list[tuple[float, Told]] = []

    def __call__(self, seconds: float, work: Told) -> None:
        self.plans.append((seconds, work))

    def turn(self, seconds: float = GROUP_S) -> None:
        """All that is due within so many seconds."""
        due = [work for when, work in self.plans if when <= seconds]
        self.plans = [plan for plan in self.plans if plan[0] > seconds]
        for work in due:
            work()


def never(*gone: object) -> None:
    raise AssertionError(gone)


def opened(path: Path, later: Later | None = None) -> Spool:
    return Spool(path / "s.db", never, soon=later)


# --- in memory, or on disk ---


def test_what_a_neighbour_has_at_once_never_lies_on_disk(tmp_path: Path) -> None:
    later, safe = Later(), list[str]()
    spool = opened(tmp_path, later)
    seq = spool.put(message("t/0"), ("b2",), partial(safe.append, "t/0"), hold=True)
    assert (spool.count("b2"), safe) == (1, [])
    written = spool._db.total_changes
    spool.done("b2", Waiting(seq, message("t/0")))
    later.turn(HOLD_S)
    assert (spool.count("b2"), safe, spool._db.total_changes) == (0, ["t/0"], written)


@pytest.mark.parametrize("hurried", [False, True])
def test_answers_wait_for_more_unless_they_are_hurried(hurried: bool, tmp_path: Path) -> None:
    later, said = Later(), list[int]()
    spool = opened(tmp_path, later)
    spool.hurry()
    assert not later.plans, "nothing is to be written"
    for n in range(3):
        spool.came(b"origin", n + 1)
        spool.then(partial(said.append, n))
    if hurried:
        spool.hurry()
    later.turn(0.0)
    assert said == ([0, 1, 2] if hurried else [])
    later.turn()
    assert said == [0, 1, 2]
    assert opened(tmp_path).seen(b"origin", 3), "answered, and on disk"


def test_what_is_held_is_nobodys_yet_and_is_lost_with_the_process(tmp_path: Path) -> None:
    safe = list[str]()
    held = opened(tmp_path, Later())
    held.put(message("t/0"), ("b2",), partial(safe.append, "t/0"), hold=True)
    assert topics(opened(tmp_path), "b2") == []
    assert safe == [], "whoever sent it sends it again"


def test_what_is_held_long_is_written_and_acknowledged_in_its_order(tmp_path: Path) -> None:
    later, safe = Later(), list[str]()
    spool = opened(tmp_path, later)
    for n in range(3):
        spool.put(message(f"t/{n}"), ("b2",), partial(safe.append, f"t/{n}"), hold=True)
        later.turn(HOLD_S)
    assert safe == ["t/0", "t/1"], "once or twice HOLD_S"
    assert topics(opened(tmp_path), "b2") == ["t/0", "t/1"]
    assert topics(spool, "b2") == ["t/0", "t/1", "t/2"]


def test_what_has_come_is_on_disk_with_what_goes_on_also_where_older_ones_are_written(
    tmp_path: Path,
) -> None:
    later, origin = Later(), bytes(range(18))
    folder = tmp_path / "b"
    folder.mkdir()
    spool = opened(folder, later)
    spool.put(message("t/held"), ("b2",), hold=True)
    later.turn(HOLD_S)
    spool.put(message("t/on"), ("b3",))
    spool.came(origin, 1)
    # What was held is due before the group is.
    for seconds, work in list(later.plans):
        if seconds == HOLD_S:
            work()
    shutil.copytree(folder, tmp_path / "killed")
    killed = opened(tmp_path / "killed")
    assert (killed.seen(origin, 1), killed.count("b3")) in ((False, 0), (True, 1))


def test_what_may_not_be_held_is_written_with_all_that_is_older(tmp_path: Path) -> None:
    later, safe = Later(), list[str]()
    spool = opened(tmp_path, later)
    for n, hold in enumerate((True, False)):
        spool.put(message(f"t/{n}"), ("b2",), partial(safe.append, f"t/{n}"), hold=hold)
    assert safe == []
    later.turn()
    assert (safe, topics(opened(tmp_path), "b2")) == (["t/0", "t/1"], ["t/0", "t/1"])


def test_what_is_held_has_a_bound(tmp_path: Path) -> None:
    later, safe = Later(), list[int]()
    spool = opened(tmp_path, later)
    many = HOLD_BYTES // (1 << 20) + 1
    for n in range(many):
        spool.put(message(f"t/{n}", bytes(1 << 20)), ("b2",), partial(safe.append, n), hold=True)
    later.turn()
    assert safe == list(range(many))


def test_who_has_one_of_two_neighbours_waits_for_the_other_alone(tmp_path: Path) -> None:
    later, safe = Later(), list[str]()
    spool = opened(tmp_path, later)
    one = message("t/0")
    seq = spool.put(one, ("b2", "b3"), partial(safe.append, "t/0"), hold=True)
    spool.done("b2", Waiting(seq, one))
    spool.done("b2", Waiting(seq, one))
    assert ((spool.count("b2"), spool.count("b3")), safe) == ((0, 1), [])
    spool.write()
    again = opened(tmp_path)
    assert (topics(again, "b2"), topics(again, "b3"), safe) == ([], ["t/0"], ["t/0"])


def test_what_is_told_later_waits_for_what_is_written(tmp_path: Path) -> None:
    later, told = Later(), list[str]()
    spool = opened(tmp_path, later)
    spool.then(partial(told.append, "nothing is waited for"))
    spool.came(b"a", 3)
    spool.then(partial(told.append, "it is known"))
    assert told == ["nothing is waited for"]
    later.turn()
    assert told[1:] == ["it is known"]
    assert opened(tmp_path).seen(b"a", 3)


def test_a_backlog_leaves_in_its_order_before_what_is_in_memory(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for n in range(5):
        spool.put(message(f"t/{n}"), ("b2",), hold=True)
        if n == 2:
            spool.write()
    assert [w.message.topic for w in spool.after("b2", 0, 4)] == [f"t/{n}" for n in range(4)]
    seqs = [w.seq for w in spool.after("b2", 0, 9)]
    assert seqs == sorted(seqs)
    assert [w.seq for w in spool.after("b2", seqs[3], 9)] == seqs[4:]


# --- what has come ---


def test_windows_of_a_sender_are_bounded_and_the_one_used_longest_ago_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spools, "EACH_SENDER", 3)
    spool = opened(tmp_path)
    for block in (0, 1, 2):
        spool.came(b"a", block * WIDTH + 7)
        spool.write()
    spool.came(b"b", 7)
    spool.came(b"a", 8)  # its first window again
    spool.write()
    spool.came(b"a", 1 << 23)
    spool.write()
    for known in (spool, opened(tmp_path)):
        assert [known.seen(b"a", n * WIDTH + 7) for n in (0, 1, 2)] == [True, False, True]
        assert (known.seen(b"a", 1 << 23), known.seen(b"b", 7)) == (True, True)
    assert spool._db.execute("SELECT COUNT(*) FROM seen").fetchone() == (4,)


def test_windows_of_all_are_bounded_and_none_is_taken_from_who_was_here_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spools, "WINDOWS", 10)
    monkeypatch.setattr(spools, "_CACHED", 4)
    spool = opened(tmp_path)
    for n in range(50):
        spool.came(b"%d" % n, 1)
        spool.came(b"a", n + 1)
        spool.write()
        assert spool._db.execute("SELECT COUNT(*) FROM seen").fetchone()[0] <= 10
        assert len(spool._seen._kept) <= 4
    assert all(spool.seen(b"a", n + 1) for n in range(50))
    assert [spool.seen(b"%d" % n, 1) for n in range(50)] == [False] * 41 + [True] * 9


def test_a_sender_s_windows_reach_as_far_back_as_a_neighbour_s_messages_wait() -> None:
    assert (spools.EACH_SENDER - 1) * WIDTH >= MESSAGES
    assert BYTES // MESSAGES > 64, "so the number is the bound for small ones"


# --- killed at any moment ---


class Killed(Exception):
    """Nothing after this."""


def relayed(folder: Path) -> tuple[World, Crossing]:
    """b2 is to get this of b1, and to hand it on to b3."""
    world = World(folder, [("b1", "b2"), ("b2", "b3")], "b3")
    world.leave()
    [waiting] = world["b1"].spool.after("b2", 0, 9)
    assert world["b1"].traffic.still_goes("b2", waiting.message)
    world.records()
    return world, crossing_of(waiting)


def test_a_message_that_goes_on_is_spooled_once_whenever_its_bridge_is_killed(
    tmp_path: Path,
) -> None:
    """It had been passed on and not yet noted as come: brought again, it was spooled twice."""
    world, sent = relayed(tmp_path)
    b2, moments = world["b2"], list[Path]()

    def before(statement: str) -> None:
        moments.append(tmp_path / str(len(moments)))
        moments[-1].mkdir()
        for file in ("b2.db", "b2.db-wal"):
            shutil.copy(tmp_path / file, moments[-1] / file.replace("b2", "s"))

    b2.spool._db.set_trace_callback(before)
    assert b2.take("b1", sent) == [(OK, "")]
    before("and afterwards")
    b2.spool._db.set_trace_callback(None)
    left = list[int]()
    for moment in moments:
        b2.spool = b2.traffic._spool = opened(moment)  # the next process
        b2.handed.clear()  # and another line
        left.append(len(b2.spool.after("b3", 0, 9)))
        assert left[-1] == int(b2.spool.seen(*_which(world, sent))), "both or neither"
        assert b2.take("b1", sent) == [(OK, "")]
        assert len(b2.spool.after("b3", 0, 9)) == 1
    assert len(left) > 4
    assert (left[0], left[-1], left) == (0, 1, sorted(left))
    world.flow()
    assert len(world["b3"].delivered) == 1


def _which(world: World, sent: Crossing) -> tuple[bytes, int]:
    said = sent.m1[5:19]
    issuer = world["b2"].judge.issuer("b1", sent.token)
    return sent.site + issuer.encode() + said, int.from_bytes(sent.m1[19:22], "big")


def test_a_message_is_with_the_own_broker_before_it_is_noted_and_goes_on(tmp_path: Path) -> None:
    """Killed before that it is brought again; an error that heals nothing takes nothing from the
    sites that it goes on to."""
    world, sent = relayed(tmp_path)
    b2 = world["b2"]
    b2.traffic.imports[site_of("b1"), LABEL] = Import("b1", "heat")

    def dies(*given: object) -> None:
        assert b2.spool.after("b3", 0, 9) == []
        raise Killed

    deliver, b2.traffic._deliver = b2.traffic._deliver, dies
    with pytest.raises(Killed):
        b2.take("b1", sent)
    assert (b2.spool.after("b3", 0, 9), b2.spool.seen(*_which(world, sent))) == ([], False)
    b2.traffic._deliver = deliver
    b2.errors = [Unavailable("it will never be")]
    assert b2.take("b1", sent) == [(OK, "")]
    assert (len(b2.spool.after("b3", 0, 9)), b2.named()) == (1, ["it will never be"])


# --- who is acknowledged when ---


@pytest.fixture
def north(tmp_path: Path) -> Site:
    made = Site("b1", tmp_path, Plain())
    made.judge.configure(_exports("b2", "b3"), {}, {}, 0)
    made.traffic.neighbours = frozenset({"b2", "b3"})
    made.traffic.exported = {"heat": frozenset({"b2", "b3"})}
    return made


def _exports(*peers: str) -> Any:
    return SimpleNamespace(
        peers={name: SimpleNamespace(far=False, exports=("heat",)) for name in peers}
    )


def own(site: Site, ctr: int, safe: list[int], peer: str = "b2", kept: bool = True) -> None:
    done = partial(safe.append, ctr)
    site.traffic.own("heat", LABEL, f"boiler/{ctr}", 1, m1(ctr, BOILER), peer, done, kept)


def test_an_own_message_is_acknowledged_when_its_neighbour_has_it(north: Site) -> None:
    safe = list[int]()
    north.traffic.up = {"b2"}
    own(north, 1, safe)
    [waiting] = north.spool.after("b2", 0, 9)
    assert safe == []
    north.spool.done("b2", waiting)
    assert safe == [1]


def test_an_own_message_is_acknowledged_from_disk_where_the_line_is_down_or_no_session_kept(
    north: Site,
) -> None:
    safe, later = list[int](), Later()
    north.spool._soon = later
    own(north, 1, safe)
    north.traffic.up = {"b2"}
    own(north, 2, safe, kept=False)
    assert safe == []
    later.turn()
    assert safe == [1, 2]


def test_a_copy_that_comes_again_is_acknowledged_with_the_first_one(north: Site) -> None:
    """The mediator's connection broke while the first one was in memory."""
    safe = list[int]()
    north.traffic.up = {"b2", "b3"}
    own(north, 1, safe)
    own(north, 1, safe)
    own(north, 1, safe, "b3")
    assert safe == []
    [waiting] = north.spool.after("b2", 0, 9)
    north.spool.done("b2", waiting)
    assert safe == [1, 1], "b3's waits for b3"
    own(north, 1, safe)
    assert (safe, north.spool.count("b2"), north.spool.count("b3")) == ([1, 1, 1], 0, 1)


def test_what_does_not_leave_is_named_and_acknowledged(north: Site) -> None:
    safe = list[int]()
    north.judge.configure(_exports(), {}, {}, 0)
    own(north, 1, safe)
    assert (safe, len(north.named())) == ([1], 1)
