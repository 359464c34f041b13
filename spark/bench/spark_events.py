"""Events of the audit log as a busy site has them, and how often."""

from __future__ import annotations

from collections.abc import Callable

import spark_world as world
from spark_bad import bad
from spark_lines import Lines

Maker = Callable[[Lines], str | None]

ODD = ("odd-reader", "odd-device", "odd-guest")
"""Clients that behave otherwise in one hour of every second day."""
_ODD_HOUR = 14
# The replayed, the forged, what is too old or malformed, and what policy says no to.
_PACKETS = (
    ("mediator.publish.replay", "counter 4711 was seen already"),
    ("mediator.publish.unauthentic", "the tag of m2 does not verify"),
    ("mediator.publish.stale", "the message is 412 s old, 300 s are allowed"),
    ("mediator.publish.malformed", "61 bytes are no m2"),
    ("mediator.control.unauthentic", "the request in the name of %s does not verify"),
)
_CONNECTS = (
    ("mediator.connect.unauthentic", "provisioning generation 1 is not valid"),
    ("mediator.connect.behind", "boot 1 conn 1 does not rise above boot 1"),
    ("mediator.connect.denied", "the client is disabled"),
)
_PUBLISHES = (
    ("labels.publish.other-label", "the topic has zone-3, the client zone-4"),
    ("labels.create.not-allowed", "nobody but plant managers creates plant/+/plan"),
    ("mediator.publish.toolarge", "70000 bytes, 65536 are allowed"),
)
# A family that there is not: reports know none.
_FAMILY = "consent"
_SUBSCRIBES = (
    (f"{_FAMILY}.subscribe.prohibited", "an agreement prohibits staff-planning"),
    (f"{_FAMILY}.subscribe.nothing-said", "the subscription does not say what for"),
    ("labels.subscribe.above", "zone-9 is above the client's label"),
)
_WITHHELD = (
    f"{_FAMILY}.deliver.not-allowed", f"{_FAMILY}.deliver.not-allowed", "labels.deliver.above",
    f"{_FAMILY}.deliver.prohibited",
)  # fmt: skip
_RARE = (
    ("broker-away", ',"reason":"the broker closed the connection"'),
    ("broker-back", ',"address":"127.0.0.1:18830"'),
    ("config-reloaded", f',"enforce":true,"order":["labels","{_FAMILY}"]'),
    ("topic-reset", ',"topic":"plant/1/line/2/machine/3/state"'),
    ("handover-missed", ',"client":"device-77","label":"zone-37","epoch":3'),
    ("client-left", ',"client":"device-78","label":"zone-38","reason":"disabled"'),
    ("keys-changed", ',"kseq":12,"notes":["zone-38: a new epoch"]'),
)


def _delivered(of: Lines) -> str:
    number = world.popular_topic(of.rnd())
    reader = world.popular_reader(of.rnd())
    topic, _, label, where = world.topic(number)
    count = of.how_many()
    of.tally.topics.add(number)
    of.tally.decided["delivered", ""] += count
    rest = f',"client":"reader-{reader}","topic":"{topic}","label":"{label}"'
    if where:
        rest += world.said(reader, number, where)
    return of.counted("delivered", rest, count)


def _accepted(of: Lines) -> str:
    topic, client, label, _ = world.topic(world.popular_topic(of.rnd()))
    count = of.how_many()
    of.tally.decided["publish-accepted", ""] += count
    rest = f',"client":"{client}","topic":"{topic}","label":"{label}"'
    return of.counted("publish-accepted", rest, count)


def _withheld(of: Lines) -> str:
    topic, _, label, _ = world.topic(world.popular_topic(of.rnd()))
    rule = _WITHHELD[int(of.rnd() * len(_WITHHELD))]
    count = of.how_many()
    of.tally.decided["deliver-denied", rule] += count
    reader = world.popular_reader(of.rnd())
    rest = f',"client":"reader-{reader}","topic":"{topic}","rule":"{rule}","label":"{label}"'
    return of.counted("deliver-denied", rest, count)


def _unenforced(of: Lines) -> str:
    topic, client, _, _ = world.topic(world.popular_topic(of.rnd()))
    rule, count = "labels.publish.other-label", of.how_many()
    of.tally.decided["unenforced", rule] += count
    rest = f',"client":"{client}","topic":"{topic}","rule":"{rule}","question":"publish"'
    return of.counted("unenforced", rest, count)


def _connect(of: Lines) -> str:
    client = of.device()
    of.tally.decided["connect", ""] += 1
    made = of.record(
        "connect", f',"client":"{client}","peer":"{of.peer()}","client_id":"sealmq-{client}"'
    )
    if not of.kept_last():
        of.lonely = of.number, of.at
    return made


def _disconnect(of: Lines) -> str:
    rest = f',"client":"{of.device()}","reason":"DISCONNECT","clean":true'
    return of.record("disconnect", rest)


def _labelled(of: Lines) -> str:
    topic, client, label, _ = world.topic(of.new_topic())
    rest = f',"client":"{client}","topic":"{topic}","label":"{label}","rule":"labels.publish.first"'
    return of.record("topic-labelled", rest)


def _refused(
    of: Lines, event: str, why: tuple[tuple[str, str], ...], before: str, after: str, who: str = ""
) -> str:
    rule, reason = why[int(of.rnd() * len(why))]
    of.tally.decided[event, rule] += 1
    if "%s" in reason:
        reason %= who
    return of.record(event, f'{before},"rule":"{rule}","reason":"{reason}"{after}')


def _packet_refused(of: Lines) -> str:
    who = of.device()
    after = f',"client":"{who}","peer":"{of.peer()}"'
    return _refused(of, "packet-refused", _PACKETS, "", after, who)


def _connect_refused(of: Lines) -> str:
    peer, client = f',"peer":"{of.peer()}"', f',"client_id":"sealmq-{of.device()}"'
    return _refused(of, "connect-refused", _CONNECTS, peer, client)


def _publish_refused(of: Lines) -> str:
    topic, client, _, _ = world.topic(world.popular_topic(of.rnd()))
    peer = f',"peer":"{of.peer()}"'
    before = f',"client":"{client}","topic":"{topic}"'
    return _refused(of, "publish-refused", _PUBLISHES, before, peer, client)


def _subscribe_refused(of: Lines) -> str:
    reader = world.popular_reader(of.rnd())
    topic = f"plant/{int(of.rnd() * 24)}/#"
    before = f',"client":"reader-{reader}","topic":"{topic}"'
    return _refused(of, "subscribe-refused", _SUBSCRIBES, before, "")


def _folded(of: Lines) -> str:
    rule, count = _CONNECTS[0][0], 1 + int(500 * of.rnd())
    of.tally.decided["connect-refused", rule] += count
    return of.counted("folded", f',"of":"connect-refused","rule":"{rule}"', count)


def _command(of: Lines) -> str:
    topic, client, _, _ = world.topic(world.popular_topic(of.rnd()))
    word, rule = world.drawn_word(of.rnd()), f"{_FAMILY}.entitled.label"
    of.tally.decided["command", rule] += 1
    rest = (
        f',"client":"{client}","family":"{_FAMILY}","topic":"{topic}",'
        f'"detail":"agree to {word}","rule":"{rule}"'
    )
    return of.record("command", rest)


def _rare(of: Lines) -> str:
    event, rest = _RARE[int(of.rnd() * len(_RARE))]
    if event == "config-reloaded":
        of.tally.decided[event, ""] += 1
    return of.record(event, rest)


def _odd(of: Lines) -> str:
    hour = of.at // world.HOUR_MS
    spike = hour % 48 == 24 + _ODD_HOUR
    count = 200 if spike else 1 + int(4 * of.rnd())
    which = int(of.rnd() * 3)
    client = ODD[which]
    topic = f'"topic":"plant/1/odd/{client}","label":"zone-1"'
    if which == 2:
        rule = "mediator.publish.unauthentic"
        of.tally.decided["packet-refused", rule] += count
        rest = f',"of":"packet-refused","client":"{client}","rule":"{rule}"'
        return of.counted("folded", rest, count)
    event = ("delivered", "publish-accepted")[which]
    of.tally.decided[event, ""] += count
    if which == 0:
        of.tally.topics.add(-1)
    return of.counted(event, f',"client":"{client}",{topic}', count)


def _repeated(of: Lines) -> str | None:
    return of.repeated()


_OF_THOUSAND = (
    (_delivered, 470), (_accepted, 330), (_withheld, 75), (_connect, 25), (_disconnect, 25),
    (_labelled, 15), (_publish_refused, 12), (_packet_refused, 10), (_subscribe_refused, 6),
    (_connect_refused, 6), (_rare, 6), (_folded, 4), (_command, 5), (_unenforced, 2), (_odd, 5),
    (_repeated, 3), (bad, 1),
)  # fmt: skip
_TABLE: tuple[Maker, ...] = tuple(maker for maker, share in _OF_THOUSAND for _ in range(share))


def next_line(of: Lines, at: int) -> str:
    """One line, good or bad, made at that ms; counted."""
    of.at = at
    of.tally.lines += 1
    made = None
    while made is None:
        made = _TABLE[int(of.rnd() * 1000)](of)
    return made
