"""Calls that block: the asyncio client's own, from a script's thread."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from client_peer import Peer, play
from sealmq.client import BlockingClient, Client, Closed, ConnectFailed, Message, TimedOut
from sealmq.families.purposes.client import Purposes
from sealmq_spec.errors import Denied, Misuse


def script(work: Callable[[Peer, Client], None]) -> None:
    """Run a script in its own thread beside the peer."""

    async def story(peer: Peer) -> None:
        await asyncio.to_thread(work, peer, Client.from_enrolment(peer.enrolment()))

    play(story)


def test_a_script_publishes_subscribes_and_reads() -> None:
    def work(peer: Peer, client: Client) -> None:
        with BlockingClient(client) as c:
            assert c.subscribe("machine/#", qos=0) == [0]
            c.publish("machine/1/t", "21.5", qos=1)
            message = c.receive(within=20)
            assert (message.topic, message.payload) == ("machine/1/t", b"21.5")
            c.publish("machine/2/t", b"22", qos=1, tlv={40: b"note"})
            assert next(c.messages(within=20)).topic == "machine/2/t"
            c.unsubscribe("machine/#")
            say = Purposes(c.client)
            c.run(say.reserve("machine/1/t", ["service"]))
            c.run(say.release("machine/1/t"))
            c.run(say.presubscribe("panel", "machine/#", "service"))
            c.clear("machine/1/t", qos=1, tlv={41: b""})
        assert [p.topic for p in peer.published] == ["machine/1/t", "machine/2/t", "machine/1/t"]
        assert [p.tlv for p in peer.published] == [{}, {40: b"note"}, {41: b""}]
        assert len(peer.commands) == 3

    script(work)


def test_a_refusal_is_raised_where_the_script_called() -> None:
    def work(peer: Peer, client: Client) -> None:
        peer.knobs.refuse["other/t"] = (5, "labels.publish.other-label", "not yours")
        with BlockingClient(client) as c, pytest.raises(Denied, match="not yours"):
            c.publish("other/t", b"1", qos=1)

    script(work)


def test_without_a_message_in_time_it_is_an_error_and_the_next_one_still_comes() -> None:
    def work(peer: Peer, client: Client) -> None:
        with BlockingClient(client) as c:
            with pytest.raises(TimedOut, match=r"receive: no answer within 0\.1 s"):
                c.receive(within=0.1)
            c.subscribe("a")
            c.publish("a", b"1", qos=1)
            assert c.receive(within=20).payload == b"1"

    script(work)


def test_disconnect_ends_the_iteration_of_another_thread() -> None:
    def work(peer: Peer, client: Client) -> None:
        got: list[Message] = []
        reading = threading.Event()

        def messages(c: BlockingClient) -> Iterator[Message]:
            reading.set()
            yield from c.messages()

        with BlockingClient(client) as c:
            c.subscribe("a")
            reader = threading.Thread(target=lambda: got.extend(messages(c)))
            reader.start()
            reading.wait(20)
            c.publish("a", b"1", qos=1)
        reader.join(20)
        assert not reader.is_alive()

    script(work)


def test_calls_without_a_connection_are_errors_and_it_can_connect_again() -> None:
    def work(peer: Peer, client: Client) -> None:
        c = BlockingClient(client)
        for call in (lambda: c.publish("a", b""), lambda: c.receive(), lambda: c.subscribe("a")):
            with pytest.raises(Closed, match="not connected"):
                call()
        c.disconnect()
        for _ in range(2):
            c.connect()
            with pytest.raises(Closed, match="connected already"):
                c.connect()
            c.publish("a", b"1", qos=1)
            c.disconnect()
        assert len(peer.published) == 2

    script(work)


def test_a_gateway_that_is_away_is_an_error_when_the_script_s_time_is_over() -> None:
    client = Client.from_enrolment(Peer().site.enrolment(1))
    with pytest.raises(ConnectFailed, match="refused"):
        BlockingClient(client).connect(within=0)
    assert not [thread for thread in threading.enumerate() if thread.name == "sealmq"]


def test_a_call_that_blocks_is_an_error_where_it_would_block_the_connection() -> None:
    def work(peer: Peer, _: Client) -> None:
        made: list[BlockingClient] = []
        failed: list[Exception] = []

        def on_state(what: str) -> None:
            calls: list[Callable[[], None]] = [partial(made[0].publish, "a", b"1")]
            for call in [*calls, made[0].disconnect]:
                try:
                    call()
                except Misuse as error:
                    failed.append(error)

        made.append(BlockingClient(Client.from_enrolment(peer.enrolment(), on_state=on_state)))
        with made[0] as c:
            c.publish("b", b"1", qos=1)
        assert [p.topic for p in peer.published] == ["b"]
        assert len(failed) > 1

    script(work)


def test_a_thread_that_cannot_serve_is_an_error_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full() -> asyncio.AbstractEventLoop:
        raise OSError(errno.EMFILE, "Too many open files")

    client = BlockingClient(Client.from_enrolment(Peer().site.enrolment(1)))
    with monkeypatch.context() as patched:
        patched.setattr(asyncio.events, "new_event_loop", full)
        with pytest.raises(OSError, match="Too many"):
            client.connect(within=0)
    with pytest.raises(ConnectFailed):
        client.connect(within=0)
