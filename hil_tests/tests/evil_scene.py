"""A site whose broker and whose network are the attacker's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sealmq_spec.const import LIVE, RETAINED
from sealmq_spec.records import Roots

from attack_scene import CLEAN, EVERYTHING, KEPT, Scene, again
from evil_broker import EvilBroker
from running_site import Site, until
from wire import RawClient, mono, packet, publish, text

# Runs a test with each of the links over which the broker can reach a reader.
LINKS = pytest.mark.parametrize("evil", ["live", "own"], indirect=True)
INSTRUMENT = Path(__file__).with_name("instrument")


class EvilScene(Scene):
    """The factory with an attacker's broker, and a clock that can be put forward."""

    def __init__(self, site: Site, evil: EvilBroker, env: dict[str, str]) -> None:
        self.evil, self._env = evil, env
        self._clock = Path(env["SEALMQ_CLOCK"])
        self._wall_ms = self._gone_ms = self._last_filter = 0
        super().__init__(site)

    def later(self, seconds: int) -> None:
        """Puts the whole gateway's clock ahead; readers and publishers connect anew."""
        self._gone_ms += seconds * 1000
        self.set_clock(seconds)
        self.gather()

    def gather(self) -> None:
        """As Scene.gather, with new keys: labels may have been rekeyed meanwhile."""
        for name in ("monitor", "m2-temp-sensor"):
            self._first.pop(name, None)
        super().gather()

    def set_clock(self, seconds: int) -> None:
        """The gateway's clock jumps, ahead or back."""
        self._wall_ms += seconds * 1000
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(f"{self._wall_ms} {self._gone_ms}")
        fresh.rename(self._clock)

    @property
    def sealed(self) -> Path:
        """The folder that holds what every process sealed: a digest of key and nonce, and one of
        what was sealed.
        """
        return Path(self._env["SEALMQ_RECORD"])

    def stop(self) -> None:
        """Stops the site; the broker stays."""
        for raw in self.made:
            if hasattr(raw, "wire"):
                raw.close()
        assert self.site.down() == 0

    def start(self) -> None:
        """Starts it again. Clients come with their enrolment alone."""
        with environment(self._env):
            self.site.up("--broker", self.evil.url)
        self._first.clear()

    def heard(self) -> list[tuple[bytes, bytes, int]]:
        """What the reader above everything got since it was last asked."""
        self.evil.settle()
        return super().heard()

    def reached_over(self, own: bool) -> None:
        """Gives the reader above everything a kept session, with an own link, or a clean one, which
        is reached over the link that all share.
        """
        if own != self.own:
            if self.own:
                again(self.listener.raw, 0, CLEAN)
            self.flags = KEPT if own else CLEAN
            self.gather()

    @property
    def own(self) -> bool:
        """Whether the broker reaches the reader above everything over a link of its own."""
        return self.flags == KEPT

    def to_reader(self, topic: bytes, payload: bytes, first: int = 0x30, pid: int = 0) -> None:
        """The broker sends this to the reader above everything.

        With RETAIN on the live link it would be ignored, so it is also served as a retained
        message when the reader subscribes anew.
        """
        raw = self.listener.raw
        self.evil.tell(raw.client_id.decode(), topic, payload, first, pid)
        if first & 1 and not self.own:
            self.evil.instead = [(topic, payload)]
            before = self.evil.fetched.count(EVERYTHING)
            token, _ = raw.session.token(EVERYTHING)
            raw.wire.send(packet(0x82, b"\0\x09" + text(token.encode()) + b"\0"))
            until("the snapshot", lambda: self.evil.fetched.count(EVERYTHING) > before)
            self.evil.instead = None

    def fetched(self, raw: RawClient) -> None:
        """Waits until all retained messages that this client has asked for are fetched: the
        mediator fetches them in the order of its subscriptions.
        """
        self._last_filter += 1
        filt = f"fetched/{self._last_filter}"
        raw.subscribe(filt)
        until("its retained messages", lambda: filt in self.evil.fetched)

    def caught(self, topic: bytes, payload: bytes, sender: RawClient, first: int = 0x32) -> bytes:
        """An honest message as the broker sees it: m3; the reader has heard it as well."""
        before = len(self.evil.seen(topic))
        kind = RETAINED if first & 1 else LIVE
        sealed = sender.seal(topic, payload, first & 7, kind, 255 if kind else 0)
        sender.wire.send(publish(topic, sealed, first, 1))
        sender.acknowledged()
        seen = until("the message at the broker", lambda: self.evil.seen(topic)[before:])
        heard = self.heard()
        assert payload in [p for _, p, _ in heard], heard
        return seen[-1]

    def refuses(self, *classes: str) -> bool:
        """Whether the reader opened nothing, and refused what came for these reasons."""
        heard = [payload for _, payload, _ in self.heard()]
        return heard == [b"refused " + name.encode() for name in classes]

    def roots(self, label: int) -> Roots:
        """The newest roots of a label as the reader above everything derived them."""
        held = self.listener.reader._roots

        def known() -> bool:
            if not any(key[0] == label for key in held):
                self.fetch(label)
            return any(key[0] == label for key in held)

        # The mediator may not have heard of a new label's keys yet.
        until(f"the records of label {label}", known)
        found: Roots = held[max(key for key in held if key[0] == label)]
        return found

    def fetch(self, label: int) -> None:
        """The reader asks for the records that lead to a label."""
        raw = self.listener.raw
        raw.wire.send(publish(b"!c1", raw.session.fetch(label, mono())))
        self.heard()


@contextmanager
def evil_scene(
    folder: Path, prepare: Callable[[Site], None] = lambda site: None
) -> Iterator[EvilScene]:
    """The scene, running. What its processes seal is kept below `folder`/sealed, as digests.

    prepare: edits the site before it is started.
    """
    clock, sealed = folder / "clock", folder / "sealed"
    clock.write_text("0 0")
    sealed.mkdir()
    path = os.environ.get("PYTHONPATH", "")
    env = {
        "PYTHONPATH": f"{INSTRUMENT}:{path}".rstrip(":"),
        "SEALMQ_CLOCK": str(clock),
        "SEALMQ_RECORD": str(sealed),
    }
    evil = EvilBroker()
    site = Site(folder)
    _add_labels(site)
    prepare(site)
    with environment(env):
        site.up("--broker", evil.url)
    try:
        yield EvilScene(site, evil, env)
    finally:
        site.down()
        evil.close()


def _add_labels(site: Site) -> None:
    """Two labels of suite 2 side by side, below the reader of everything."""
    old = 'monitor = ["m1-arm", "m2-arm", "ctrl-room-temp"]\n'
    site.edit(
        old,
        'east = { over = [], suite = "chacha" }\nwest = { over = [], suite = "chacha" }\n'
        + old.replace("]", ', "east", "west"]'),
    )


@contextmanager
def environment(added: dict[str, str]) -> Iterator[None]:
    """Variables for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
