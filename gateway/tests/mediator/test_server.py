"""A client's socket and its session: which of the two ends first, and what is touched then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core_world import Peer, Shell
from mediator_world import SENSOR
from sealmq.mediator.clock import Clock
from sealmq.mediator.core import effects as fx
from sealmq.mediator.events import Events
from sealmq.mediator.server import Channel
from sealmq.mediator.strangers import Strangers
from sealmq.mqtt import build


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


@pytest.mark.parametrize("how", ["close", "cut"])
def test_a_session_that_outlives_its_connection_ends_wholly(how: str) -> None:
    async def scene() -> None:
        shell = Shell()
        events = Events(shell.site, Clock())
        ended: list[fx.End] = []

        def end(session: Any, effect: fx.End) -> None:
            events.peers[session].end(effect.cut)
            ended.append(effect)

        ignored = {kind: lambda *words: None for kind in fx.ALL}
        # OpenSession is not answered, so the task of CONNECT keeps the session.
        events.executed_by({**ignored, fx.End: end})
        channel = Channel(shell.site, events, Strangers(10))
        transport = Transport()
        channel.connection_made(transport)
        peer = Peer(shell, SENSOR)
        channel.data_received(_raw(peer))
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


def _raw(peer: Peer) -> bytes:
    password = peer.hello().password
    return build.connect(peer.client_id, keepalive=60, username="sealmq1", password=password)
