"""What a mediator holds for a slow reader."""

from __future__ import annotations

from sealmq.mediator.core.limits import SLOW_BYTES, SLOW_SURE_BYTES
from sealmq.mediator.outgoing import Outgoing
from sealmq.mqtt import Publish


def message(topic: str, payload: bytes, qos: int) -> Publish:
    return Publish(topic, topic.encode(), payload, qos, False, False, qos)


class Reader:
    """A client's socket that takes `room` packets."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.paused: list[bool] = []
        self.room = 0
        self.out = Outgoing(self.take, self.paused.append)

    def take(self, packet: Publish) -> None:
        self.taken.append(packet.payload)
        self.room -= 1
        if self.room <= 0:
            self.out.slow(True)


def test_a_reader_that_keeps_up_gets_everything_at_once() -> None:
    reader = Reader()
    reader.room = 10**6
    assert reader.out.put(message("t", b"x", 0)) == []
    assert reader.taken == [b"x"]
    assert reader.out.held == 0


def test_the_oldest_of_qos_0_are_dropped_and_qos_1_keeps_its_place() -> None:
    reader = Reader()
    reader.out.slow(True)
    size = SLOW_BYTES // 8
    dropped = reader.out.put(message("s", b"sure", 1))
    for n in range(40):
        dropped += reader.out.put(message(f"t/{n}", b"%d" % (n % 10) * size, 0))
    assert reader.out.held <= SLOW_BYTES + 1000
    assert reader.paused == []
    assert [packet.topic for packet in dropped] == [f"t/{n}" for n in range(len(dropped))]
    assert len(dropped) >= 32
    reader.room = 10**6
    reader.out.slow(False)
    assert reader.taken[0] == b"sure"
    assert len(reader.taken) == 1 + 40 - len(dropped)
    assert reader.out.held == 0


def test_behind_much_of_qos_1_the_broker_waits_and_order_stays() -> None:
    reader = Reader()
    reader.out.slow(True)
    payloads = [b"%02d" % n + bytes(SLOW_SURE_BYTES // 10) for n in range(12)]
    for payload in payloads:
        assert reader.out.put(message("t", payload, 1)) == []
    assert reader.paused == [True]
    while reader.out.held:
        reader.room = 3
        reader.out.slow(False)
    assert reader.paused == [True, False]
    assert reader.taken == payloads


def test_what_waited_for_a_slow_client_waits_for_its_keys_too() -> None:
    reader = Reader()
    reader.out.slow(True)
    reader.out.put(message("t", b"one", 1))
    reader.out.stopped = True
    reader.room = 10**6
    reader.out.slow(False)
    assert reader.taken == []
    reader.out.put(message("t", b"two", 1))
    reader.out.stopped = False
    reader.out.go_on()
    assert reader.taken == [b"one", b"two"]
