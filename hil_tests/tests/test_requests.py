"""Provisioning requests in a session (SPEC.md 7.2): whose they may be, and under which suite."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from sealmq_spec.const import ANSWER
from sealmq_spec.identity import Identity
from sealmq_spec.provision import ask

from attack_scene import LIVE, TOPIC, Scene, notices, scene
from running_site import Site
from wire import CONTROL, Cipher, RawClient, publish

CONTROLLED, UNAUTHENTIC = 4, 2


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The factory."""
    made = Site(tmp_path_factory.mktemp("requests"))
    made.up()
    with scene(made) as whole:
        yield whole
    made.down()


def _request(i: Identity, nonce_c: bytes, suite: int = 0, boot: int = 1) -> bytes:
    made: bytes = ask(
        Cipher, i.site, i.ps, suite or i.suite, i.client, i.gen, boot, nonce_c, i.mediator
    )
    return publish(CONTROL, made)


def _answer(raw: RawClient) -> bytes:
    while True:
        got = raw.next("a provisioning answer")
        if got[1][2:6] == CONTROL + bytes((ANSWER,)):
            return got[1][5:]


@pytest.mark.parametrize("boot", [0, 1, 0xFFFFFF])
def test_a_request_may_name_another_client_and_any_boot(site: Scene, boot: int) -> None:
    raw, other = site.client("m1-temp-sensor"), site.client("m1-control-panel").ident
    raw.connect(keepalive=0)
    held, nonce_c = other.gen, os.urandom(16)
    raw.wire.send(_request(other, nonce_c, boot=boot))
    other.accept(Cipher, nonce_c, _answer(raw))
    assert other.gen == held, "one that is pending is given again"
    # Nothing has changed for the client whose connection it is.
    raw.publish(TOPIC, b"goes on")
    assert site.heard() == [(TOPIC, b"goes on", LIVE)]
    assert notices(raw) == []


def test_a_request_in_another_suite_than_the_links_is_refused(site: Scene) -> None:
    raw = site.client("m1-temp-sensor")
    raw.connect(keepalive=0)
    raw.wire.send(_request(raw.ident, os.urandom(16), suite=3 - raw.ident.suite))
    raw.control(raw.next("a notice"))
    assert [n[:3] for n in notices(raw)] == [(CONTROLLED, 0, UNAUTHENTIC)]
    raw.publish(TOPIC, b"goes on")
    assert site.heard() == [(TOPIC, b"goes on", LIVE)]
