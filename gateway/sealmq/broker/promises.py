"""What a broker keeps of MQTT's promises, and the refusal of what it does not.

A client that is let in is promised what it asked for. So what its broker would silently leave out
is refused before: a session that is to outlive its connection at CONNECT, a shared subscription at
SUBSCRIBE, a retained message or a QoS at PUBLISH. What the mediator makes good itself is no matter
of the broker: wills, keep alive, clearing what is retained.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from sealmq.mqtt.text import discouraged_fault
from sealmq_spec.errors import Unsupported

SESSION = "broker.promise.persistent-session"
SHARED = "broker.promise.shared-subscription"
RETAINED = "broker.promise.retained"
QOS = "broker.promise.qos"
CHARACTERS = "mqtt.characters"
LEVELS = "broker.takes.levels"
LENGTH = "broker.takes.length"
SIZE = "broker.takes.size"
MESSAGE = "broker.takes.message"

CURE = '`sealmq up --broker mosquitto`, or [broker] kind = "mosquitto", keeps them'


class NotPromised(Unsupported):
    """The site's broker does not do this. `rule` is one of the above."""

    def __init__(self, reason: str, rule: str) -> None:
        super().__init__(reason)
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Promises:
    """What a broker does.

    keeps_sessions: a session with its subscriptions, and what comes for it at QoS 1 and 2, waits
    for a client that is away, over a restart of the broker too. shared: $share/GROUP/FILTER gives
    each message to one of the group. retained: the last retained message waits for new subscribers.
    qos: the highest that it takes and grants. inflight: how many messages of QoS 2 one connection
    may have under way; of more, some brokers acknowledge and lose some. queue: how many messages
    wait for a connection that does not take them, at least; more are dropped. (What stands here is
    what Mosquitto does unless it is told otherwise.) filters: how many it takes in one SUBSCRIBE.
    faults: what it does that an operator should know, as sentences.
    """

    keeps_sessions: bool = True
    shared: bool = True
    retained: bool = True
    qos: int = 2
    inflight: int = field(default=20, compare=False)
    queue: int = field(default=1000, compare=False)
    filters: int = field(default=100, compare=False)
    faults: tuple[str, ...] = field(default=(), compare=False)

    def handed_over(self) -> dict[str, bool | int]:
        """The mediator is told so, beside the address."""
        return {name: value for name, value in asdict(self).items() if name != "faults"}

    def missing(self) -> list[str]:
        """What it does not do, in words."""
        said = [
            (self.keeps_sessions, "no sessions that outlive a connection"),
            (self.shared, "no shared subscriptions"),
            (self.retained, "no retained messages"),
            (self.qos == 2, f"no QoS above {self.qos}"),
        ]
        return [words for does, words in said if not does]


# amqtt holds sessions, and what waits for them, in memory: a restart of its process would break
# what was promised. (Asking it does not show that.)
EMBEDDED = Promises(keeps_sessions=False, shared=False, inflight=1000, queue=60_000)
MOSQUITTO = Promises(inflight=1000)


def check_session(keeps_sessions: bool, clean: bool) -> None:
    """At CONNECT: NotPromised for a session that would be lost (MQTT 3.1.1 section 3.1.2.4)."""
    if not clean and not keeps_sessions:
        raise NotPromised(f"the site's broker keeps no sessions for clients; {CURE}", SESSION)


def check_group(shared: bool) -> None:
    """At SUBSCRIBE and UNSUBSCRIBE: NotPromised for a shared subscription."""
    if not shared:
        raise NotPromised("the site's broker has no shared subscriptions", SHARED)


def check_publish(retained: bool, most: int, retain: bool, qos: int) -> None:
    """At PUBLISH: NotPromised for what would not be retained, or a QoS that it would not keep."""
    if retain and not retained:
        raise NotPromised("the site's broker retains no messages", RETAINED)
    if qos > most:
        raise NotPromised(f"the site's broker knows no QoS above {most}", QOS)


@dataclass(frozen=True, slots=True)
class BrokerTakes:
    """The most that a broker takes; on more it hangs up, or drops it without a word.

    levels, filter_levels: of a topic and of a filter. length: bytes of a topic or filter.
    client_id: bytes of a client identifier. packet: bytes of a whole PUBLISH. characters: whether
    it takes those that MQTT advises against. What stands here is for a broker that cannot be tried.
    """

    levels: int = 100
    filter_levels: int = 100
    length: int = 1024
    client_id: int = 256
    packet: int = 256 * 1024
    characters: bool = False

    def check_topic(self, topic: str, length: int) -> None:
        """At PUBLISH and of a will's topic: NotPromised for what the broker does not take, or what
        not every broker does (SPEC.md 9). `length`: in bytes.
        """
        _check_characters("the topic has", topic)
        self._check(topic, length, self.levels, "topic")

    def check_filter(self, filt: str) -> None:
        """At SUBSCRIBE and UNSUBSCRIBE, of the filter as it goes to the broker."""
        _check_characters("the filter has", filt)
        self._check(filt, len(filt.encode()), self.filter_levels, "filter")

    def check_size(self, packet: int) -> None:
        """Of a PUBLISH as it goes to the broker, `packet` bytes in all."""
        if packet > self.packet:
            raise NotPromised(
                f"the site's broker takes messages of {self.packet} bytes, not of {packet}", SIZE
            )

    def check_client_id(self, given: str, at_broker: str) -> None:
        """At CONNECT: the identifier that the client gave, and what the broker would see."""
        _check_characters("the client identifier has", given)
        size = len(at_broker.encode())
        if size > self.client_id:
            most = max(0, self.client_id - size + len(given.encode()))
            raise NotPromised(
                f"the site's broker takes client identifiers of {most} bytes at most here", LENGTH
            )

    def takes(self, topic: str, packet: int) -> bool:
        """Whether the broker should take this; nothing is said of what other brokers do."""
        length = len(topic.encode())
        if length > self.length or topic.count("/") >= self.levels or packet > self.packet:
            return False
        return self.characters or discouraged_fault(topic) is None

    def _check(self, text: str, length: int, levels: int, what: str) -> None:
        if text.count("/") >= levels:
            raise NotPromised(
                f"the site's broker takes {levels} levels in a {what}, not {text.count('/') + 1}",
                LEVELS,
            )
        if length > self.length:
            raise NotPromised(
                f"the site's broker takes a {what} of {self.length} bytes, not of {length}", LENGTH
            )


def _check_characters(what: str, text: str) -> None:
    if fault := discouraged_fault(text):
        raise NotPromised(f"{what} {fault}", CHARACTERS)
