"""Claim 8 on the client's side: whatever a session does, no (key, nonce) serves two things."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealmq_spec import const
from sealmq_spec.identity import Identity
from sealmq_spec.session import Session
from spec_cipher import Recorder
from spec_people import NOW, Mediator, connect_packet, new_identity, new_roots, publish

ACTS = (
    "publish",
    "retained",
    "will",
    "subscribe",
    "unsubscribe",
    "command",
    "ask time",
    "connect",
    "welcome",
    "new gen",
    "new epoch",
    "restart",
    "clone",
    "restore",
)


class Device:
    """A client's sessions over its life; `boot` is what its flash holds, which may be set back."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.ident = new_identity(7, new_roots(16))
        self.mediator = Mediator()
        self.boot = 1
        self.session = self.start()
        self.others: list[Session] = []

    def start(self) -> Session:
        """A boot session, connected."""
        session = Session(self.ident, self.recorder.make, self.boot, os.urandom(8))
        self.mediator.welcome(session)
        return session

    def renew(self, own_changes: bool) -> None:
        """Provisioned again: a new link root, perhaps new roots, the same boot session."""
        old = self.ident
        ident = Identity(old.site, 7, 1, old.ps)
        ident.gen, ident.kseq, ident.km = old.gen + 1, old.kseq + 1, os.urandom(32)
        ident.own = new_roots(16, old.own.epoch + 1) if own_changes else old.own
        self.ident = ident
        self.session.renew(ident)

    def act(self, what: str, number: int) -> None:
        """One thing that a client does or that happens to it."""
        s = self.session
        if what == "publish":
            publish(s, b"t/%d" % (number % 20), bytes([number]), flags=number & 6)
        elif what == "retained":
            publish(s, b"t", bytes([number]), flags=1, kind=const.RETAINED, life=255)
        elif what == "will":
            publish(s, b"t/will", bytes([number]), flags=1, kind=const.WILL, life=255)
        elif what in ("subscribe", "unsubscribe"):
            s.token(f"t/{number}", 0, int(what == "unsubscribe"))
        elif what == "command":
            s.up(b"\x81\x01x" + bytes([number]), 0)
        elif what == "ask time":
            s.ask_time(os.urandom(16), 0)
        elif what == "connect":
            connect_packet(s, 0, bool(number & 1))
        elif what == "welcome":
            # A mediator that says what it likes.
            lie = {
                "status": number & 1,
                "boot_floor": number * 65535,
                "top": number,
                "mask": number,
            }
            self.mediator.ms = (NOW - 1000 * number) * 1000
            self.mediator.welcome(s, 0, other=lie)
        elif what == "new gen":
            self.renew(False)
        elif what == "new epoch":
            self.renew(True)
        elif what == "restart":
            self.boot += 1
            self.session = self.start()
        elif what == "clone":
            self.others.append(self.start())
            self.session, self.others[-1] = self.others[-1], self.session
        elif what == "restore":
            self.boot = max(1, self.boot - 2)
            self.session = self.start()


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 255)), max_size=40))
def test_no_nonce_twice_under_one_key(acts: list[tuple[str, int]]) -> None:
    recorder = Recorder()
    device = Device(recorder)
    for what, number in acts:
        device.act(what, number)
        if device.session.now_ms(0) is None:
            device.session = device.start()
    assert recorder.seals >= 1


@pytest.mark.parametrize("act", ACTS)
def test_every_act_seals_or_starts_something(act: str) -> None:
    """The property above is not empty: nothing it does fails silently."""
    recorder = Recorder()
    device = Device(recorder)
    before = recorder.seals
    device.act(act, 3)
    publish(device.session, b"t", b"x")
    assert recorder.seals > before


def test_the_recorder_notices_a_repeated_salt() -> None:
    """The one event that the nonces rest on: two boot sessions with one salt, 2^-64 a pair."""
    recorder = Recorder()
    device = Device(recorder)
    publish(device.session, b"t", b"x")
    twin = Session(device.ident, recorder.make, device.session.boot, device.session.salt)
    device.mediator.welcome(twin, 0)
    with pytest.raises(AssertionError, match="twice under one key"):
        publish(twin, b"t", b"y")
