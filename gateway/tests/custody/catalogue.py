"""The worlds, and the defences that can be taken out of the code: without a defence, its world
shows that something is lost, doubled or never goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from unittest import mock

from sealmq.mediator.core.boots import BootSession
from sealmq.mediator.core.delivery import Delivery
from sealmq.mediator.core.effects import Answer
from sealmq.mediator.forwarding import Forwarding
from sealmq.mediator.journal import Journal
from sealmq.mediator.links.live import _Line
from sealmq.mediator.links.publish import PublishLink
from sealmq.mediator.session_links import SessionLinks
from sealmq.mqtt import Publish, build

from .world import Bounds

_ALL = {"kept": 1}
# The first message is accepted.
_ONE = (
    "publisher publishes",
    "publish brings a packet",
    "the disk is done",
    "publisher reads",
)

_APART = Bounds(
    (2, 2),
    {"kept": 2},
    {"broker": 1},
    publisher=False,
    apart=True,
    begun=(
        "a message is published",
        "a message is published",
        "own brings a packet",
        "kept reads",
        "broker falls",
        "control is heard to have fallen",
        "broker starts",
    ),
)

WORLDS: Mapping[str, Bounds] = {
    # A publisher that comes again while its message is anywhere.
    "publisher": Bounds((2,), _ALL, {"publisher": 1}, away=True),
    # A topic without a label; the store dies.
    "label": Bounds((1,), _ALL, {"publisher": 1, "worker": 1}, new=True, away=True),
    "publish-link": Bounds((2,), _ALL, {"publish": 1, "messages": 1}, away=True),
    "control-link": Bounds((1,), _ALL, {"control": 1}, away=True),
    "worker": Bounds((2,), _ALL, {"worker": 1}, away=True),
    "broker": Bounds((1,), _ALL, {"broker": 1}, away=True, begun=_ONE),
    # Several of its messages go to the disk together.
    "company": Bounds((1, 2), _ALL, {}, away=True, company=True),
    # Only readers here; another machine publishes.
    "clean": Bounds((1, 2), {"clean": 2}, {"clean": 1, "live": 1, "worker": 1}, publisher=False),
    "kept": Bounds((1, 2), {"kept": 2}, {"kept": 1, "own": 1, "worker": 1}, publisher=False),
    "paused": Bounds((2, 2, 2), {"kept": 2}, {}, publisher=False, window=1, room=100, held=1),
    "denied": Bounds((2,), {"kept": 2}, {"kept": 1}, publisher=False, denies=1),
    # Messages of two workers, which publish their journals again in any order; the reader has one
    # whose id the broker has not released.
    "apart": _APART,
    # From the publisher to both readers.
    "whole": Bounds((1,), {"clean": 1, "kept": 1}, {}),
}
"""In `make test`."""

LARGE: Mapping[str, Bounds] = {
    "broker-any": Bounds((1,), _ALL, {"broker": 1}, away=True),
    "publish-link-2": Bounds((1, 2), _ALL, {"publish": 1, "messages": 1}, away=True),
    "company-2": Bounds((1, 2), _ALL, {"publisher": 1}, away=True, company=True),
    "publisher-2": Bounds((1, 2), _ALL, {"publisher": 2}, falls=2, away=True),
    # The broker saves, and falls with the newest file or the one before.
    "saves": Bounds((1,), _ALL, {"broker": 1}, saves=2, away=True, prompt=True),
    "saves-4": Bounds(
        (1,),
        _ALL,
        {"broker": 1},
        saves=4,
        away=True,
        prompt=True,
        begun=(
            "publisher publishes",
            "publisher reads",
            *("broker saves", "the journal looks") * 2,
        ),
    ),
    "apart-falls": _APART._replace(crashes={"broker": 1, "kept": 1}, falls=2),
    "kept-broker": Bounds((2,), {"kept": 2}, {"broker": 1}, saves=1, publisher=False),
    "whole-2": Bounds(
        (2,), {"clean": 2, "kept": 2}, {"publisher": 1, "kept": 1, "broker": 1}, prompt=True
    ),
    "paused-falls": Bounds(
        (2, 2, 2), {"kept": 2}, {"own": 1, "kept": 1}, publisher=False, window=1, room=100, held=1
    ),
    "company-worker": Bounds((1, 2), _ALL, {"worker": 1}, away=True, company=True),
    "denied-2": Bounds((2, 2), {"kept": 2}, {"kept": 1}, publisher=False, denies=2),
    "worker-2": Bounds((1,), _ALL, {"worker": 2, "publish": 1}, falls=2, away=True),
}
"""In `make test-full`, beside the others."""


class Defence(NamedTuple):
    """`world`: shows that it is missing. `out`: takes it out of the code."""

    text: str
    world: Bounds
    out: Callable[[], contextlib.AbstractContextManager[Any]]


def _instead(where: Any, name: str, made: Any) -> Callable[[], Any]:
    return lambda: mock.patch.object(where, name, made)


def _at_once(self: Journal, seq: int, call: Callable[..., None], *words: Any) -> None:
    call(*words)


def _acknowledges_first(self: _Line, packet: Any, came: Any = _Line._came) -> None:
    if isinstance(packet, Publish) and packet.qos:
        ack = build.puback if packet.qos == 1 else build.pubrec
        self.link.send(ack(packet.packet_id))
    came(self, packet)


def _answers_itself(
    self: Delivery, message: Any, payload: bytes, qos: int, own: int, write: Any = Delivery._write
) -> None:
    write(self, message, payload, qos, own)
    if own and qos:
        self._session.emit(Answer((build.puback if qos == 1 else build.pubrec)(own)))


class _Nothing(set[int]):
    def add(self, one: int) -> None:
        pass


def _does_not_see_pubrel(self: Delivery, session: Any, *more: Any) -> None:
    _INIT(self, session, *more)
    self._unreleased = _Nothing()


_INIT = Delivery.__init__


@contextlib.contextmanager
def _ends_here() -> Iterator[None]:
    ended: set[tuple[int, int]] = set()
    released = Delivery.own_released
    withhold = Delivery._withhold

    def withholds(self: Delivery, qos: int, own: int) -> None:
        withhold(self, qos, own)
        ended.add((id(self), own))

    def releases(self: Delivery, packet: Any) -> None:
        if (id(self), packet.packet_id) in ended:
            self._session.emit(Answer(build.pubcomp(packet.packet_id)))
        else:
            released(self, packet)

    with (
        mock.patch.object(Delivery, "_withhold", withholds),
        mock.patch.object(Delivery, "own_released", releases),
    ):
        yield


def _forgets(self: Journal, folder: Any, start: Any = Journal._start) -> None:
    start(self, folder)
    del self._segments[:-1]


def _ends_at_the_first_save(
    self: Journal, segment: Any, now: float, up_since: float, saved: float | None
) -> bool:
    return segment.open <= 0 and self._saves[1] is not None


async def _goes_on(self: Forwarding) -> None:
    pass


def _does_not_count(self: Forwarding, session: Any, effect: Any, losses: int) -> None:
    self._events.run(session.accepted, effect.sent)


async def _leaves_them(self: PublishLink, reason: str) -> None:
    self._underway.clear()
    self._twos = 0


def _nothing(*words: Any) -> None:
    pass


_PLAIN = Bounds((1,), _ALL, {}, away=True)
_ACCEPTED = Bounds((1,), _ALL, {"broker": 1}, away=True, begun=_ONE)


def _then(who: str) -> tuple[str, ...]:
    return (*_ONE, f"{who} falls", f"{who} starts")


DEFENCES: Mapping[str, Defence] = {
    "durable-first": Defence(
        "PUBACK waits for the journal's disk", _PLAIN, _instead(Journal, "when", _at_once)
    ),
    "outbox-first": Defence(
        "the live link acknowledges what lies in the outboxes",
        Bounds((1,), {"clean": 1}, {}, publisher=False),
        _instead(_Line, "_came", _acknowledges_first),
    ),
    "readers-word": Defence(
        "the own link acknowledges what the kept reader has acknowledged",
        Bounds((1,), {"kept": 1}, {}, publisher=False),
        _instead(Delivery, "_write", _answers_itself),
    ),
    "pubrel-paused": Defence(
        "a paused own link is read on while the whole window waits for PUBREL",
        WORLDS["paused"],
        _instead(Delivery, "__init__", _does_not_see_pubrel),
    ),
    "pubrel-withheld": Defence(
        "PUBREL of a withheld message goes to the kept client, which may hold its id",
        WORLDS["denied"],
        _ends_here,
    ),
    "ids-forgotten": Defence(
        "a kept client forgets ids that a broker draws anew",
        WORLDS["apart"],
        _instead(Delivery, "_forget", _nothing),
    ),
    "old-journal": Defence(
        "a worker that starts again has the journal of the one before",
        _ACCEPTED._replace(crashes={"worker": 1, "broker": 1}, falls=2, begun=_then("worker")),
        _instead(Journal, "_start", _forgets),
    ),
    "third-save": Defence(
        "an entry ends at the third save",
        _ACCEPTED._replace(saves=1),
        _instead(Journal, "_over", _ends_at_the_first_save),
    ),
    "replay-first": Defence(
        "nothing goes out before the journal's replay is over",
        _ACCEPTED._replace(
            messages=(1, 1),
            begun=(*_then("broker"), "publish is heard to have fallen", "publisher publishes"),
        ),
        _instead(Forwarding, "_has_all", _goes_on),
    ),
    "journal-replayed": Defence(
        "what the journal has is published again after a loss of the broker",
        _ACCEPTED._replace(begun=_then("broker")),
        _instead(Journal, "broker_lost", _nothing),
    ),
    "losses-counted": Defence(
        "what the broker had before it was lost is not accepted",
        _ACCEPTED._replace(begun=(*_ONE[:2], "broker falls", "broker starts")),
        _instead(Forwarding, "_durable", _does_not_count),
    ),
    "resend-known": Defence(
        "a packet that comes again is answered with the one that is under way",
        Bounds((1,), _ALL, {"publisher": 1}, away=True),
        _instead(BootSession, "again", lambda self, ctr, tag: None),
    ),
    "suspects-tried": Defence(
        "what the broker has not answered is tried again when the publish link fell",
        Bounds((2,), _ALL, {"publish": 1}, away=True),
        _instead(PublishLink, "_try_suspects", _leaves_them),
    ),
    "live-gap": Defence(
        "clean sessions end when the live link has fallen",
        Bounds((1,), {"clean": 1}, {"live": 1}, publisher=False),
        _instead(SessionLinks, "live_lost", _nothing),
    ),
}
