"""A client's socket and its session: which of the two ends first, and what is touched then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core_world import Peer, Shell
from mediator_world import PANEL, SENSOR
from sealmq.mediator.clock import Clock
from sealmq.mediator.core import effects as fx
from sealmq.mediator.events import Events
from sealmq.mediator.server import Channel
from sealmq.mqtt import Connect, build
from sealmq.strangers import Strangers


class Transport(asyncio.Transport):
    """A socket whose descriptor belongs to another connection as soon as its own is lost."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.7", 1883)})
        self.lost = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        assert not self.lost or name != "socket", "the descriptor of another connection"
        return super().get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self.lost

    def write(self, data: Any) -> None:
        assert not self.lost

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


def _channel(shell: Shell, ended: list[fx.End]) -> Channel:
    events = Events(shell.site, Clock())

    def end(session: Any, effect: fx.End) -> None:
        events.peers[session].end(effect.cut)
        ended.append(effect)

    ignored = {kind: lambda *words: None for kind in fx.ALL}
    # OpenSession is not answered, so the task of CONNECT keeps the session.
    events.executed_by({**ignored, fx.End: end})
    return Channel(shell.site, events, Strangers(10))


@pytest.mark.parametrize("how", ["close", "cut"])
def test_a_session_that_outlives_its_connection_ends_wholly(how: str) -> None:
    async def scene() -> None:
        shell, ended = Shell(), list[fx.End]()
        channel = _channel(shell, ended)
        events = channel._events
        transport = Transport()
        channel.connection_made(transport)
        peer = Peer(shell, SENSOR)
        channel.data_received(_raw(peer))
        await asyncio.sleep(0)
        assert channel.session.state == "opening"
        transport.lost = True
        channel.connection_lost(ConnectionResetError())
        if how == "cut":
            events.run(channel.session._end, "disabled", "gone", True)
        else:
            events.run(channel.session.close, "over")
        assert ended
        assert channel.session not in events.peers

    asyncio.run(scene())


def test_a_fault_while_a_packet_is_handled_ends_its_session_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        shell, ended = Shell(), list[fx.End]()
        channel = _channel(shell, ended)
        other = Channel(shell.site, channel._events, Strangers(10))
        for one in (channel, other):
            one.connection_made(Transport())

        def fault(packet: Any) -> None:
            raise ZeroDivisionError("a fault")

        channel.session._takes = {Connect: fault}
        channel.data_received(_raw(Peer(shell, SENSOR)))
        other.data_received(_raw(Peer(shell, PANEL)))
        await asyncio.sleep(0)
        assert (channel.session.state, len(ended)) == ("closed", 1)
        assert other.session.state == "opening"

    asyncio.run(scene())
    assert "a fault" in caplog.text


def test_what_came_before_a_connection_was_lost_is_handled() -> None:
    async def scene() -> None:
        shell, ended = Shell(), list[fx.End]()
        channel = _channel(shell, ended)
        channel.connection_made(Transport())
        took = list[Any]()
        channel.session._takes = {Connect: took.append}
        channel.data_received(_raw(Peer(shell, SENSOR)))
        channel.connection_lost(ConnectionResetError())
        assert (len(took), channel.session.state) == (1, "closed")
        await asyncio.sleep(0)
        assert len(ended) == 1

    asyncio.run(scene())


def test_much_that_comes_in_one_turn_of_the_loop_is_handled_at_once() -> None:
    async def scene() -> None:
        shell = Shell()
        channel = _channel(shell, [])
        channel.connection_made(Transport())
        channel.data_received(_raw(Peer(shell, SENSOR)))
        assert channel.session.state == "new"
        other = Channel(shell.site, channel._events, Strangers(10))
        other.connection_made(Transport())
        other.data_received(bytes(256 * 1024))
        assert (channel.session.state, other.session.state) == ("opening", "closed")

    asyncio.run(scene())


def _raw(peer: Peer) -> bytes:
    password = peer.hello().password
    return build.connect(peer.client_id, keepalive=60, username="sealmq1", password=password)
