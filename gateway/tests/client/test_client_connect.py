"""From an enrolment to a welcomed connection, and everything that must prevent one."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from client_peer import LABEL, QUICK, Peer, client_of, now_ms, own, play, until
from sealmq.client import (
    BadWelcome,
    Client,
    Closed,
    ConnectFailed,
    ConnectionLost,
    ConnectRefused,
    NotAuthorised,
    Options,
    PeerFault,
    ServerUnavailable,
    StateError,
    TimedOut,
    Will,
    backoff,
    boot,
)
from sealmq.client.backoff import draw
from sealmq.client.client import read_enrolment
from sealmq.client.door import Opened
from sealmq.client.life import Life
from sealmq.client.randomness import mono_ms
from sealmq.client.state import StateFile
from sealmq.mqtt import build
from sealmq_spec import control, provision
from sealmq_spec.const import CONTROL, U24
from sealmq_spec.errors import Denied, Malformed, Stale, TooLarge, Unauthentic, Unavailable
from sealmq_spec.identity import Identity


@pytest.mark.parametrize("suite", [1, 2])
def test_a_cold_start_provisions_by_itself_and_then_proves_who_it_is(suite: int) -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            assert client.connected
            assert client.clock == "kg"
            assert abs((client.now() or 0) - now_ms() / 1000) < 2
            assert (client.identity.gen, own(client).label) == (1, LABEL)
        quarantine, session = peer.links
        assert quarantine.quarantine
        assert not quarantine.connect.password[32:]  # type: ignore[union-attr,index]
        assert not session.quarantine
        await session.done.wait()
        assert session.goodbye
        assert peer.highest == (1, 1, 1)

    play(story, suite)


def test_state_survives_a_restart_and_boot_is_stored_before_connect(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        path = tmp_path / "app.state"
        async with client_of(peer, path):
            pass
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert json.loads(path.read_text())["boot"] == 1
        # Whatever the mediator does with CONNECT, boot was raised before it.
        peer.knobs.connack = 3
        with pytest.raises(ServerUnavailable) as caught:
            await client_of(peer, path).connect()
        assert caught.value.return_code == 3
        assert json.loads(path.read_text())["boot"] == 2
        peer.knobs.connack = 0
        async with client_of(peer, path) as client:
            assert client.identity.gen == 1
        assert len(peer.site.asked) == 1, "a provisioned client does not ask again"
        assert peer.highest == (1, 3, 1)
        salts = list(peer.salts.values())
        assert len(set(salts)) == len(salts) == 2

    play(story)


def test_behind_takes_the_floor_plus_one_and_a_new_salt(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        path = tmp_path / "app.state"
        peer.knobs.floor = 41
        async with client_of(peer, path) as client:
            await client.publish("a", b"x", qos=1)
        assert peer.highest == (1, 42, 1)
        assert json.loads(path.read_text())["boot"] == 42
        first, second = [boot for _, boot, _ in peer.boots]
        assert (first, second) == (1, 42)
        assert len({salt for _, _, salt in peer.boots}) == 2

    play(story)


def test_behind_with_a_gen_that_is_too_low_provisions_anew(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        path = tmp_path / "app.state"
        async with client_of(peer, path):
            pass
        # The mediator has seen gen 9; this client's state came back from a backup.
        peer.highest, peer.site.newest = (9, 1, 1), 9
        async with client_of(peer, path) as client:
            assert client.identity.gen == 10
        assert peer.highest == (10, 3, 1)

    play(story)


def test_at_the_end_of_boot_a_higher_generation_begins_from_1(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        path = tmp_path / "app.state"
        async with client_of(peer, path) as client:
            lent = client.identity
        held = json.loads(path.read_text())
        path.write_text(json.dumps(held | {"boot": U24}))
        async with client_of(peer, path) as client:
            assert client.identity.gen == 2
        assert peer.highest == (2, 1, 1)
        assert json.loads(path.read_text())["boot"] == 1
        # A lent identity has no way to a higher gen.
        peer.knobs.floor = U24
        with pytest.raises(NotAuthorised):
            await Client(lent, "127.0.0.1", peer.port, options=QUICK).connect()

    play(story)


def test_a_mediator_that_says_behind_for_ever_is_given_up() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.floor = 0xFFFFFF
        with pytest.raises(ConnectFailed, match="12 times"):
            await client_of(peer).connect()

    play(story)


def test_a_lent_identity_starts_at_boot_1_and_never_asks_for_roots() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            lent = client.identity
        asked = len(peer.site.asked)
        async with Client(lent, "127.0.0.1", peer.port, options=QUICK) as again:
            await again.publish("a", b"x", qos=1)
        assert peer.highest[1] == 2
        peer.knobs.connack = 5
        with pytest.raises(NotAuthorised):
            await Client(lent, "127.0.0.1", peer.port, options=QUICK).connect()
        assert len(peer.site.asked) == asked

    play(story)


def test_several_that_act_as_one_client_may_begin_in_the_same_moment() -> None:
    """A script's `sealmq pub ... &`: each takes the boot that the others take."""

    async def story(peer: Peer) -> None:
        async with client_of(peer) as owner:
            lent = owner.identity
            crowd = [Client(lent, "127.0.0.1", peer.port, options=QUICK) for _ in range(10)]
            await asyncio.gather(*(client.connect() for client in crowd))
            assert len({client.boot for client in crowd}) == len(crowd)
            await asyncio.gather(*(client.disconnect() for client in crowd))

    play(story)


def test_roots_of_an_ended_generation_are_replaced_once(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        path = tmp_path / "app.state"
        async with client_of(peer, path):
            pass
        peer.site.gens = {}  # the key generator was restored, or another holder provisioned
        async with client_of(peer, path) as client:
            assert client.identity.gen == 2
        peer.knobs.connack = 5
        with pytest.raises(NotAuthorised) as caught:
            await client_of(peer, path).connect()
        assert caught.value.return_code == 5

    play(story)


@pytest.mark.parametrize(
    ("status", "error"), [(provision.DISABLED, Denied), (provision.LATER, Unavailable)]
)
def test_a_disabled_client_and_a_busy_key_generator(status: int, error: type[Exception]) -> None:
    async def story(peer: Peer) -> None:
        peer.site.status = status
        with pytest.raises(error):
            await client_of(peer).connect()

    play(story)


def test_a_spoilt_provisioning_answer_is_refused_and_nothing_stored(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        path = tmp_path / "app.state"
        peer.knobs.spoil_answer = True
        with pytest.raises(Unauthentic):
            await client_of(peer, path).connect()
        assert not path.exists()
        assert len(peer.links) == 1

    play(story)


def test_provisioning_never_goes_back(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        path = tmp_path / "app.state"
        peer.site.kseq = 20
        async with client_of(peer, path):
            pass
        before = path.read_text()
        peer.site.gens, peer.site.kseq = {}, 19
        with pytest.raises(Stale):
            await client_of(peer, path).connect()
        assert json.loads(path.read_text())["identity"] == json.loads(before)["identity"]

    play(story)


@pytest.mark.parametrize("what", ["random", "unsealed", "other connection", "receipt", "publish"])
def test_nothing_is_trusted_without_a_valid_welcome(what: str) -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            lent = client.identity
        if what == "random":
            peer.knobs.welcome = b"\x15\x10" + os.urandom(80)
        elif what == "unsealed":
            peer.knobs.welcome = control.welcome(0, now_ms(), 0, 0, 0, 1, 10, b"\x00")
        elif what == "other connection":
            peer.knobs.welcome = peer.link.sealed(b"\x01" + bytes(30), conn=2)
        else:
            peer.knobs.welcome = b""
        app = Client(lent, "127.0.0.1", peer.port, options=QUICK)
        if what == "receipt":
            connecting = asyncio.ensure_future(app.connect())
            await until(lambda: not (len(peer.links) < 3 or peer.link.boot is None))
            peer.link.receipt()
            with pytest.raises(BadWelcome, match="operation 2"):
                await connecting
        elif what == "publish":
            connecting = asyncio.ensure_future(app.connect())
            await until(lambda: not (len(peer.links) < 3 or peer.link.boot is None))
            peer.link.deliver("a", peer.m3("a", b"x", label=LABEL))
            with pytest.raises(BadWelcome):
                await connecting
        else:
            with pytest.raises(BadWelcome):
                await app.connect()
        assert not app.connected
        with pytest.raises(Closed):
            await app.publish("a", b"x")

    play(story)


def test_a_welcome_replayed_from_another_connection_is_refused() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            lent = client.identity
        seen = next(p for p in _sent(peer) if p[:1] == b"\x15")
        peer.knobs.welcome = seen
        with pytest.raises(BadWelcome, match="does not verify"):
            await Client(lent, "127.0.0.1", peer.port, options=QUICK).connect()

    play(story)


def _sent(peer: Peer) -> list[bytes]:
    """A welcome's packet as the last connection had it."""
    link = peer.link
    assert link.boot is not None
    body = control.welcome(0, now_ms(), 0, 0, 0, 1, 10, b"\x00")
    return [link.sealed(body)]


@pytest.mark.parametrize(
    "answer",
    [
        b"\x20\x03\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x30\xff\xff\xff\x7f",
        build.publish(CONTROL, b"\x1b"),
        build.pingresp(),
    ],
    ids=["connack too long", "reserved", "http", "oversized", "answer first", "pingresp first"],
)
def test_what_is_no_connack_ends_the_attempt(answer: bytes) -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.say_nothing = True
        connecting = asyncio.ensure_future(client_of(peer).connect())
        await until(lambda: not (not peer.links or peer.link.connect is None))
        peer.link.send(answer)
        with pytest.raises((PeerFault, BadWelcome)):
            await connecting

    play(story)


def test_a_welcome_that_took_too_long_sets_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            lent = client.identity
        ticks = itertools.count(1_000_000, 2001)
        monkeypatch.setattr("sealmq.client.door.mono_ms", lambda: next(ticks))
        with pytest.raises(BadWelcome, match="longer than 2 s"):
            await Client(lent, "127.0.0.1", peer.port, options=QUICK).connect()

    play(story)


def test_a_refusal_in_quarantine_is_taken_for_one() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.connack = 3
        with pytest.raises(ServerUnavailable):
            await client_of(peer).connect()
        assert len(peer.links) == 1
        assert not peer.site.asked

    play(story)


def test_silence_is_a_typed_error() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.say_nothing = True
        options = Options(connect_timeout=0.2)
        with pytest.raises(ConnectFailed, match=r"0\.2 s"):
            await client_of(peer, options=options).connect(within=0)

    play(story)


def test_nobody_listening_is_a_typed_error() -> None:
    async def story(peer: Peer) -> None:
        client = client_of(peer)
        await peer.down()
        with pytest.raises(ConnectFailed, match="connection refused"):
            await client.connect()

    play(story)


def test_a_peer_that_closes_at_once_is_a_typed_error() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.say_nothing = True
        connecting = asyncio.ensure_future(client_of(peer).connect())
        await until(lambda: not (not peer.links))
        peer.link.cut()
        with pytest.raises(ConnectionLost):
            await connecting

    play(story)


def test_who_waits_is_told_what_to_do_about_a_secret_that_was_rotated() -> None:
    """Who asks for keys with another secret has its connection closed, without a word."""

    async def story(peer: Peer) -> None:
        told: list[str] = []
        peer.knobs.say_nothing = True
        client = Client.from_enrolment(peer.enrolment(), on_state=told.append)
        connecting = asyncio.create_task(client.connect(within=600))
        await until(lambda: bool(peer.links))
        peer.link.cut()
        await until(lambda: bool(told))
        await client.disconnect()
        with pytest.raises(Closed):
            await connecting
        assert "`sealmq client rotate`" in told[0]

    play(story)


def test_a_will_goes_out_sealed_and_untimed() -> None:
    async def story(peer: Peer) -> None:
        will = Will("app/gone", b"farewell", qos=1, retain=True, life=255)
        async with client_of(peer, options=Options(will=will)):
            [seen] = peer.published
            assert (seen.topic, seen.payload, seen.qos, seen.retain) == (
                "app/gone",
                b"farewell",
                1,
                True,
            )
            assert (seen.kind, seen.life) == (2, 255)
            assert seen.ctr >= peer.link.low

    play(story)


def test_two_processes_may_not_share_a_state_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(peer: Peer) -> None:
        path = tmp_path / "app.state"
        async with client_of(peer, path):
            for within in (0, 0.1):
                with pytest.raises(StateError, match="in use"):
                    await client_of(peer, path).connect(within=within)
            monkeypatch.setattr(boot, "BUSY_S", 0.1)
            with pytest.raises(StateError, match="in use"):
                await client_of(peer, path).connect()
        async with client_of(peer, path):
            pass

    play(story)


def test_a_state_file_that_another_process_gives_back_soon_is_waited_for(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        path = tmp_path / "app.state"
        async with client_of(peer, path):
            waits = client_of(peer, path)
            connects = asyncio.create_task(waits.connect())
            await asyncio.sleep(0.1)
            assert not connects.done()
        await connects
        await waits.disconnect()
        cut = client_of(peer, path)
        async with client_of(peer, path):
            connects = asyncio.create_task(cut.connect())
            await asyncio.sleep(0.1)
            connects.cancel()
            await asyncio.gather(connects, return_exceptions=True)
        async with client_of(peer, path):
            pass

    play(story)


@pytest.mark.parametrize("text", ["{", "[]", '{"sealmq": 1}', "\x00\x01", '{"boot": -1}'])
def test_a_file_that_is_no_state_is_not_overwritten(tmp_path: Path, text: str) -> None:
    async def story(peer: Peer) -> None:
        path = tmp_path / "app.state"
        path.write_text(text)
        with pytest.raises(StateError, match="is not the state of client"):
            await client_of(peer, path).connect()
        assert path.read_text() == text
        assert not peer.links

    play(story)


def test_another_clients_state_is_refused(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        path = tmp_path / "app.state"
        async with client_of(peer, path):
            pass
        async with Peer() as other:
            with pytest.raises(StateError):
                await client_of(other, path).connect()

    play(story)


def test_torn_roots_in_the_state_are_provisioned_anew(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        path = tmp_path / "app.state"
        async with client_of(peer, path):
            pass
        held = json.loads(path.read_text())
        last = held["identity"][-2:]
        held["identity"] = held["identity"][:-2] + ("00" if last != "00" else "01")
        path.write_text(json.dumps(held))
        async with client_of(peer, path) as client:
            assert client.identity.gen == 2
        assert json.loads(path.read_text())["boot"] == 2

    play(story)


def test_a_folder_that_is_not_there_is_a_typed_error(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        with pytest.raises(StateError, match="no/app"):
            await client_of(peer, tmp_path / "no" / "app").connect()

    play(story)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"sealmq": 2}', '{"sealmq": 1, "site": "zz"}'],
)
def test_a_file_that_is_no_enrolment(tmp_path: Path, text: str) -> None:
    path = tmp_path / "app.sealmq.json"
    path.write_text(text)
    with pytest.raises(Malformed):
        Client.from_enrolment(path)


def test_an_enrolment_without_a_usable_address(tmp_path: Path) -> None:
    peer = Peer()
    good = peer.site.enrolment(1883)
    path = tmp_path / "app.sealmq.json"
    path.write_text(json.dumps(good))
    assert read_enrolment(path) == good
    for change in (
        {"mediator": {"number": 1}},
        {"mediator": {"number": 1, "host": "h", "port": "1883"}},
        {"mediator": {"number": 1, "host": "", "port": 1883}},
    ):
        with pytest.raises(Malformed):
            Client.from_enrolment({**good, **change})


def test_no_secret_in_any_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(peer: Peer) -> None:
        caplog.set_level("DEBUG")
        path = tmp_path / "app.state"
        async with client_of(peer, path) as client:
            roots, km = own(client), client.identity.km
            shown = repr(client) + repr(client.identity) + repr(roots) + caplog.text
            for secret in (peer.site.ps, roots.r, roots.r_bar, km):
                assert secret.hex() not in shown
                assert repr(secret) not in shown

    play(story)


# --- a gateway that is not up yet, or goes away ---------------------------------------------------


def test_a_client_that_starts_before_its_gateway_waits_for_it_unless_told_otherwise() -> None:
    async def story(peer: Peer) -> None:
        await peer.down()
        told: list[str] = []
        client = Client.from_enrolment(peer.enrolment(), on_state=told.append)
        starting = asyncio.create_task(client.connect())
        await until(lambda: len(told) > 1)
        assert not starting.done()
        assert "connection refused; trying again" in told[0]
        await peer.up()
        await starting
        assert client.connected
        await client.disconnect()

    play(story)


def test_a_gateway_whose_broker_is_away_is_tried_again() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.first_connacks = [3, 0, 3]
        async with Client.from_enrolment(peer.enrolment()) as client:
            assert client.connected
        assert peer.knobs.first_connacks == []

    play(story)


@pytest.mark.parametrize("within", [0, 0.5])
def test_how_long_it_is_tried_is_for_the_caller_to_say(within: float) -> None:
    async def story(peer: Peer) -> None:
        await peer.down()
        client = Client.from_enrolment(peer.enrolment())
        with pytest.raises(ConnectFailed, match="connection refused"):
            await client.connect(within=within)
        assert not client.connected
        await peer.up()
        await client.connect()
        await client.disconnect()

    play(story)


def test_a_try_that_hangs_ends_when_the_caller_s_time_is_over() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.say_nothing = True
        client = Client.from_enrolment(peer.enrolment(), options=Options(connect_timeout=600))
        with pytest.raises(TimedOut, match=r"connecting took more than 0\.3 s"):
            await client.connect(within=0.3)

    play(story)


@pytest.mark.parametrize("code", [1, 2, 4, 5])
def test_what_cannot_heal_is_raised_at_once(code: int) -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.connack = code
        told: list[str] = []
        client = Client.from_enrolment(
            peer.enrolment(), options=Options(timeout=600), on_state=told.append
        )
        with pytest.raises(ConnectRefused) as caught:
            await client.connect()
        assert caught.value.return_code == code
        assert told == []

    play(story)


def test_disconnect_ends_a_client_that_still_tries_to_connect() -> None:
    async def story(peer: Peer) -> None:
        await peer.down()
        told: list[str] = []
        client = Client.from_enrolment(peer.enrolment(), on_state=told.append)
        starting = asyncio.create_task(client.connect(within=600))
        await until(lambda: bool(told))
        await client.disconnect()
        with pytest.raises(Closed):
            await starting
        assert not client.connected

    play(story)


@pytest.mark.parametrize("within", [0, 600])
def test_disconnect_ends_a_client_whose_connection_is_being_made(within: float) -> None:
    async def story(peer: Peer) -> None:
        client = client_of(peer)
        peer.knobs.welcome = b""  # not yet
        starting = asyncio.create_task(client.connect(within=within))
        await until(lambda: bool(peer.links) and peer.link.boot is not None)
        first = peer.link
        await client.disconnect()
        again = asyncio.create_task(client.connect(within=within))
        with pytest.raises(Closed):
            await starting
        assert not client.connected
        await until(lambda: first.goodbye)
        await until(lambda: peer.link is not first and peer.link.boot is not None)
        await client.disconnect()
        with pytest.raises(Closed):
            await again

    play(story)


class SlowState(StateFile):
    """Its lock takes until somebody says so."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.locks, self.go_on, self.has = (threading.Event() for _ in range(3))

    def open(self, identity: Identity) -> tuple[int, bytes]:
        self.locks.set()
        self.go_on.wait(20)
        try:
            return super().open(identity)
        finally:
            self.has.set()


def test_a_connect_that_is_given_up_gives_the_state_file_back(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        identity = Identity.from_enrolment(peer.enrolment())
        slow = SlowState(tmp_path / "state")
        client = Client(identity, "127.0.0.1", peer.port, state=slow, options=QUICK)
        connecting = asyncio.create_task(client.connect())
        await asyncio.to_thread(slow.locks.wait, 20)
        for _ in range(3):
            connecting.cancel()
            for _ in range(10):
                await asyncio.sleep(0)
        slow.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await asyncio.to_thread(slow.has.wait, 20)
        async with client_of(peer, tmp_path / "state") as another:
            assert another.connected

    play(story)


def test_a_connect_that_is_cancelled_as_it_succeeds_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a timeout that ends in that very moment, say."""

    async def story(peer: Peer) -> None:
        first = Life._first

        async def cancelled_then(life: Life, within: float) -> Opened:
            opened = await first(life, within)
            asyncio.get_running_loop().call_soon(connecting.cancel)
            return opened

        with monkeypatch.context() as patched:
            patched.setattr(Life, "_first", cancelled_then)
            connecting = asyncio.create_task(client_of(peer, tmp_path / "state").connect())
            with pytest.raises(asyncio.CancelledError):
                await connecting
        await until(lambda: peer.link.goodbye)
        async with client_of(peer, tmp_path / "state") as another:
            assert another.connected

    play(story)


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example", "a\0b"])
def test_what_is_no_name_of_a_host_is_a_typed_error(host: str) -> None:
    async def story(peer: Peer) -> None:
        client = Client.from_enrolment(peer.enrolment(), host=host, options=QUICK)
        with pytest.raises(ConnectFailed, match="no name of a host"):
            await client.connect(within=0)

    play(story)


@pytest.mark.parametrize(
    ("will", "error"),
    [
        (Will("a/#"), Malformed),
        (Will("$SYS/a"), Denied),
        (Will("a", bytes(20_000)), TooLarge),
    ],
)
def test_a_will_that_nobody_could_send_is_refused_at_once(
    will: Will, error: type[Exception]
) -> None:
    async def story(peer: Peer) -> None:
        told: list[str] = []
        client = Client.from_enrolment(
            peer.enrolment(), options=Options(will=will), on_state=told.append
        )
        with pytest.raises(error):
            await client.connect(within=600)
        assert told == []

    play(story)


def test_what_was_asked_in_a_lost_connection_is_an_error_at_once_and_the_client_goes_on() -> None:
    async def story(peer: Peer) -> None:
        async with Client.from_enrolment(peer.enrolment(), options=Options(timeout=600)) as client:
            asked = asyncio.create_task(client.command("silent", b"?"))
            await until(lambda: bool(peer.commands))
            peer.link.cut()
            with pytest.raises(ConnectionLost, match=r"closed|broke"):
                await asked
            assert await client.command("heard", b"?") == b"done: ?"

    play(story)


# --- waits, and counters at their end -------------------------------------------------------------


def test_waits_are_drawn_below_a_limit_that_doubles_until_a_connection_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SPEC.md 7.4: of a gateway that is not ready, hangs up, is away, and then stays."""
    limits: list[float] = []

    def waits(self: backoff.Backoff) -> float:
        limits.append(self.limit)
        return step(self)

    step = backoff.Backoff.next
    monkeypatch.setattr(backoff.Backoff, "next", waits)

    async def story(peer: Peer) -> None:
        async def cut() -> None:
            before = len(peer.links)
            peer.link.cut()
            await until(lambda: len(peer.links) > before and not peer.knobs.first_connacks)
            await until(lambda: client.connected)

        peer.knobs.first_connacks = [3, 0, 3]
        async with Client.from_enrolment(peer.enrolment()) as client:
            assert limits == [1, 2]
            peer.knobs.first_connacks = [3] * 5
            await cut()
            assert limits[2:] == [4, 8, 16, 32, 60, 60]
            monkeypatch.setattr("sealmq.client.life.mono_ms", lambda: mono_ms() + 10_000)
            await cut()
            assert limits[8:] == [1]

    play(story)


def test_a_wait_is_anything_below_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "draw", draw)
    drawn = [backoff.Backoff().next() for _ in range(200)]
    assert min(drawn) < 0.2
    assert 0.8 < max(drawn) < 1


@pytest.mark.parametrize("what", ["conn", "ctr"])
def test_used_up_counters_begin_another_boot_session(what: str) -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=Options(timeout=5)) as client:
            session = client._boots.session
            assert session is not None
            boot = session.boot
            setattr(session, what, U24)
            peer.link.cut()
            await until(lambda: (boot + 1, 1) == (peer.highest[1], peer.highest[2]))
            await until(lambda: client.connected)
            await client.publish("a/b", b"x", qos=1)

    play(story)


def test_state_of_a_secret_before_a_rotation_is_not_used(tmp_path: Path) -> None:
    """The new enrolment begins without roots (SPEC.md 7.2), though an old gen might be higher."""

    async def story(peer: Peer) -> None:
        state = tmp_path / "state"
        async with client_of(peer, state):
            pass
        asked = len(peer.site.asked)
        peer.site.ps = os.urandom(32)
        async with client_of(peer, state) as client:
            assert client.connected
        assert len(peer.site.asked) == asked + 1

    play(story)
