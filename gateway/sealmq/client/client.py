"""The client for a CPython program: connect, publish, subscribe, receive, disconnect.

It waits for a gateway that is not up yet and connects again after a loss, unless Options say
otherwise.

Example:
    async with Client.from_enrolment("app.sealmq.json", state="app.state") as client:
        await client.subscribe("machine/+/temperature", qos=1)
        await client.publish("machine/1/temperature", b"21.5", qos=1)
        async for message in client.messages():
            print(message.topic, message.payload, message.age)
"""

from __future__ import annotations

import copy
import functools
import json
import os
import stat
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sealmq.families import registry
from sealmq.feedback import NAME, Said
from sealmq.mqtt import build
from sealmq_spec.const import CLEAR, LIFE_FOREVER, LIVE, MAX_PAYLOAD, RETAINED
from sealmq_spec.errors import Denied, Malformed, Misuse, TooLarge, from_notice
from sealmq_spec.identity import Identity
from sealmq_spec.tlv import EMPTY, publishers
from sealmq_spec.topics import check_filter, check_topic, is_reserved

from .boot import Boots
from .desk import Desk
from .door import Door, Renew
from .errors import Closed, Exposed, Refused
from .life import FILTERS, Life
from .operations import Draft, Operations, Sealed, Wanted
from .randomness import mono_ms
from .seal import command_body
from .speech import speech
from .state import State, StateFile
from .values import Message, News, Notice, Options

_new = tuple.__new__
# Topics that were checked before.
_TOPICS = 256
Payload = bytes | bytearray | memoryview | str


class Client:
    """A client of a SealMQ gateway. `async with` connects and disconnects.

    identity: from an enrolment, or lent. state: the file for what outlives a restart, or a `State`;
    None keeps it in RAM. provision: whether roots are asked for with the pre-shared secret; by
    default when `identity` holds none yet or there is a state. renew: another way to new roots.
    on_notice: told of refusals that no call raises (QoS 0). on_state: told in words what becomes of
    the connection. on_news: told what a policy family tells without having been asked. on_release:
    with Options.settle told of each PUBREL, which `complete` answers; without it each is answered
    at once. on_lost: told of each subscription that is refused in a new connection; what passes is
    asked for again. Errors: see `sealmq.client.errors` and `sealmq_spec.errors`.
    """

    def __init__(
        self,
        identity: Identity,
        host: str,
        port: int = 1883,
        *,
        state: str | os.PathLike[str] | State | None = None,
        provision: bool | None = None,
        renew: Renew | None = None,
        options: Options | None = None,
        on_notice: Callable[[Notice], None] | None = None,
        on_state: Callable[[str], None] | None = None,
        on_news: Callable[[News], None] | None = None,
        on_release: Callable[[int], None] | None = None,
        on_lost: Callable[[Refused], None] | None = None,
    ) -> None:
        self.host, self.port = host, port
        self.options = options or Options()
        self._identity, self._state = identity, state
        self._provision = (
            (state is not None or not identity.gen) if provision is None else provision
        )
        self._renew = renew
        self._on_notice, self._on_state, self._on_news = on_notice, on_state, on_news
        self._on_release, self._on_lost = on_release, on_lost
        self._live = False
        self._fresh()

    @classmethod
    def from_enrolment(
        cls,
        enrolment: str | os.PathLike[str] | Mapping[str, Any],
        state: str | os.PathLike[str] | State | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        options: Options | None = None,
        on_notice: Callable[[Notice], None] | None = None,
        on_state: Callable[[str], None] | None = None,
        on_news: Callable[[News], None] | None = None,
    ) -> Client:
        """A client from an enrolment file, or from what such a file holds (SPEC.md 7.1).

        host, port: another address than the enrolment's. Malformed, or OSError for the file.
        """
        data = enrolment if isinstance(enrolment, Mapping) else read_enrolment(enrolment)
        identity = Identity.from_enrolment(data)
        there_host, there_port = address(data)
        return cls(
            identity,
            host or there_host,
            port or there_port,
            state=state,
            options=options,
            on_notice=on_notice,
            on_state=on_state,
            on_news=on_news,
        )

    # --- connection ------------------------------------------------------------------------------

    async def connect(self, *, within: float | None = None) -> None:
        """Provision where needed, connect, and verify the welcome.

        within: seconds in which a gateway that is not up yet is tried again (`timeout` unless
        given; 0: one try, as without `reconnect`); then the last error is raised. What cannot heal,
        such as a refused proof, is raised at once.
        Raises ConnectFailed, ConnectRefused, BadWelcome, StateError, or a SealError.
        """
        if self._live:
            raise Closed("the client is connected already; disconnect first")
        if self.options.will is not None:
            _checked(self.options.will.topic)
        self._fresh()
        self._live, life = True, self._life
        try:
            await life.start(self.options.timeout if within is None else within)
        except BaseException:
            if self._life is life:  # else it has been disconnected, and connects again
                self._live = False
            raise

    async def disconnect(self, *, goodbye: bool = True) -> None:
        """Say goodbye and end; the will is not sent. Nothing happens when it was done before.

        goodbye: False ends as one who vanishes; the gateway sends the will.
        """
        if self._live:
            self._live = False
            await self._life.stop(goodbye)

    async def __aenter__(self) -> Client:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.disconnect()

    # --- publish ---------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        life: int = 0,
        tlv: Mapping[int, bytes] | None = None,
        put: Mapping[str, Sequence[str]] | None = None,
        confirm: float | None = None,
        within: float | None = None,
        sealed: Sealed | None = None,
    ) -> None:
        """Publish up to 1 MiB. life: SPEC.md 3.1 (0: 60 s; 1 to 31: 2^life s; 255: unlimited).

        tlv: items for the site's policy families, {type: value}. Types are 32 to 127; with bit 7
        set as well (0x80 | type) the gateway refuses the message (Unsupported) if no family of the
        site knows that type, else it ignores the item. Values have at most 255 bytes (TooLarge).
        put: the same in a family's own words, by the option that `sealmq pub` has for them:
        {"attribute": ["speed=57"]}. Malformed.

        With QoS 1 and 2 it returns when the gateway and its broker have accepted the message, and
        raises Denied, Stale, ... (with `rule` and `reason`) when they refuse. With QoS 0 it returns
        once the message is sent; a refusal comes to `on_notice`.
        confirm: wait that many seconds for the gateway's receipt, which nobody else can forge; a
        refusal is then raised for QoS 0 as well. Unconfirmed when it does not come.
        within: seconds for connection and acknowledgement; TimedOut.
        sealed: told of the number under which it leaves, by which a reader knows it
        (`Message.number`); of another one if it is sealed once more.
        """
        draft = _draft(topic, payload, qos, retain, life, tlv, put)
        await self._running().publish(draft, confirm, within, sealed)

    def publish_nowait(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        over: Callable[[Exception | None], None],
        qos: int = 0,
        retain: bool = False,
        life: int = 0,
        put: Mapping[str, Sequence[str]] | None = None,
    ) -> int:
        """As `publish`, without waiting; RETAIN and no payload as `clear`. For whoever publishes
        very many: it needs no task for each.

        Gives the counter under which it left, in the present `boot`. 0: nothing was sent, since
        there is no connection now, or too much is unacknowledged.
        over: called once from the event loop where `publish` would return, with None, or raise,
        with the error; it raises nothing. Not with QoS 0. Once more where WrongEpoch is refused is
        not tried. Raises what is wrong with the arguments: Malformed, TooLarge, Denied; Closed.
        """
        draft = _draft(topic, payload, qos, retain, life, None, put)
        if retain and not draft.payload:
            draft = draft._replace(kind=CLEAR)
        if not self._live:
            raise Closed("the client is not connected")
        return self._operations.publish_nowait(draft, over)

    async def clear(
        self,
        topic: str,
        *,
        qos: int = 0,
        life: int = 0,
        tlv: Mapping[int, bytes] | None = None,
        confirm: float | None = None,
        within: float | None = None,
        sealed: Sealed | None = None,
    ) -> None:
        """Remove the retained message of a topic; otherwise as `publish`. life: for how long it
        may be under way to other sites, too.
        """
        draft = _draft(topic, b"", qos, True, life, tlv, None)._replace(kind=CLEAR)
        await self._running().publish(draft, confirm, within, sealed)

    # --- subscribe -------------------------------------------------------------------------------

    async def subscribe(
        self,
        *filters: str,
        qos: int = 0,
        within: float | None = None,
        **said: str | None,
    ) -> list[int]:
        """Subscribe; returns the QoS granted for each filter. Raises the first refusal.

        said: what is said to a policy family, as `purpose="service"`; None says nothing. It is told
        again after a reconnect. A filter with two different things said is two subscriptions.
        """
        answers = await self.subscribe_each(*filters, qos=qos, within=within, **said)
        for answer in answers:
            if isinstance(answer, Refused):
                raise answer
        return [answer for answer in answers if isinstance(answer, int)]

    async def subscribe_each(
        self,
        *filters: str,
        qos: int = 0,
        within: float | None = None,
        **said: str | None,
    ) -> list[int | Refused]:
        """As `subscribe`, with a refusal in the place of the QoS."""
        if qos not in (0, 1, 2):
            raise Malformed(f"QoS {qos}; it is 0, 1 or 2")
        wanted = self._wanted(filters, qos, said)
        answers: list[int | Refused] = []
        for i in range(0, len(wanted), FILTERS):
            some = wanted[i : i + FILTERS]
            answers += await self._running().ask(some, True, within)
            # The connection may be another one when the next ones are asked for.
            for one, answer in zip(some, answers[i:], strict=True):
                if not isinstance(answer, Refused):
                    self._life.filters[one.wire] = qos
        return answers

    async def unsubscribe(
        self, *filters: str, within: float | None = None, **said: str | None
    ) -> None:
        """End subscriptions, those with which this was said. Raises the first refusal."""
        wanted = self._wanted(filters, 0, said)
        for one in wanted:
            self._life.filters.pop(one.wire, None)
        for i in range(0, len(wanted), FILTERS):
            for answer in await self._running().ask(wanted[i : i + FILTERS], False, within):
                if isinstance(answer, Refused):
                    raise answer

    def _wanted(
        self, filters: Sequence[str], qos: int, said: Mapping[str, str | None]
    ) -> list[Wanted]:
        """Checked. Malformed."""
        encodes = registry.encodings(said)
        wanted = []
        for filt in filters:
            check_filter(_text(filt))
            wire = filt
            for encode in encodes:
                wire = encode(wire)
            wanted.append(Wanted(wire, filt, qos))
        return wanted

    # --- receive ---------------------------------------------------------------------------------

    async def receive(self, *, within: float | None = None) -> Message:
        """The next message; within: TimedOut after so many seconds without one. Raises Closed after
        `disconnect`, or what ended the client; first come those that have been acknowledged."""
        if not self._live and self._life.error is None:
            raise Closed("the client is not connected")
        [message] = await self._operations.receive(1, within)
        return message

    async def receive_some(self, most: int) -> list[Message]:
        """The next messages, at most so many and at least one. As `receive` otherwise."""
        if not self._live and self._life.error is None:
            raise Closed("the client is not connected")
        return self._operations.receive_nowait(most) or await self._operations.receive(most, None)

    async def messages(self) -> AsyncIterator[Message]:
        """Messages as they come, until `disconnect`. Raises what ended the connection otherwise."""
        while True:
            try:
                message = await self.receive()
            except Closed:
                return
            yield message

    def settle(self, message: Message) -> bool:
        """With Options.settle: acknowledge a message of QoS 1 or 2. False, and nothing sent, when
        the connection in which it came is over."""
        core, came = self._life.core, message.came
        if core is None or came is None or came.of is not core.came_of:
            return False
        self._life.send(came.ack)
        return True

    def complete(self, packet_id: int) -> None:
        """With Options.settle: the last answer to a message of QoS 2, of which on_release told."""
        if self._life.core is not None:
            self._life.send(build.pubcomp(packet_id))

    # --- control ---------------------------------------------------------------------------------

    async def command(
        self, family: str, command: bytes, *, reply: bool = True, within: float | None = None
    ) -> bytes:
        """Send a policy family's own command and return what the family replies (SPEC.md 4.4).

        Raises Denied, ... when it is refused. reply: False does not wait; a refusal then comes to
        `on_notice`.
        """
        body = command_body(family, command)
        return await self._running().command(family, body, reply, within)

    async def feedback(self, message: Message, good: bool, *, within: float | None = None) -> None:
        """Say what a message of another site is worth, where a policy family takes that; once for
        each message. What does not open the client says bad of by itself.

        Raises Denied, RateLimited; Malformed for a message of the own site, which nobody rates.
        """
        if not message.id:
            raise Malformed(f"{message.topic} is no message of another site")
        await self.command(NAME, Said(good, message.id, message.topic).pack(), within=within)

    async def set_attribute(
        self,
        name: str,
        subject: str | tuple[str, str],
        value: str | int | bool | None,
        *,
        valid_s: int | None = None,
        within: float | None = None,
    ) -> None:
        """Tell a value of an attribute, as `[attributes.NAME] by` lets this client; None takes it
        away. In force everywhere when this returns.

        subject: a client's name, (owner, subscriber) of a pair, "" for the site. valid_s: for how
        many seconds; by default for as long as the site allows. Raises Denied when it is refused.
        """
        said: dict[str, object] = {"name": name, "value": value}
        if subject:
            said["subject"] = list(subject) if isinstance(subject, tuple) else subject
        if valid_s is not None:
            said["valid_s"] = valid_s
        await self.command("attributes", json.dumps(said).encode(), within=within)

    async def attributes(
        self, name: str | None = None, *, within: float | None = None
    ) -> list[tuple[str, list[str], str | int | bool, int, str]]:
        """What holds of the attributes that this client may tell, or of one of them: name, names of
        the subject, value, end (Unix ms), who told it. Of very many the first.
        """
        said = json.dumps({"list": name or True}).encode()
        reply = json.loads(await self.command("attributes", said, within=within))
        return [tuple(row) for row in reply["told"]]

    # --- what can be seen ------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether a welcomed connection is there now."""
        return self._life.core is not None

    @property
    def paused(self) -> bool:
        """Whether the present connection is not read: its messages have no room in the inbox."""
        return self._life.paused

    @property
    def present(self) -> bool:
        """Whether the present connection found its MQTT session as it was left."""
        core = self._life.core
        return core is not None and core.present

    @property
    def error(self) -> Exception | None:
        """What ended the client for good, or None."""
        return self._life.error

    async def ended(self) -> None:
        """Returns once there is no connection and there will be none: `error` says why."""
        await self._life.over.wait()

    @property
    def identity(self) -> Identity:
        """Who the client is; holds its roots: not to be logged."""
        return self._boots.identity

    @property
    def boot(self) -> int:
        """The present boot session; 0: there is none yet."""
        session = self._boots.session
        return 0 if session is None else session.boot

    @property
    def clock(self) -> str:
        """Whose time this is: "kg", "mediator", or "" before a welcome (SPEC.md 7.3)."""
        session = self._boots.session
        if session is None or session.now_ms(0) is None:
            return ""
        return "kg" if session.kg_time else "mediator"

    @property
    def clock_conflict(self) -> bool:
        """Whether key generator and mediator differ by more than W/2."""
        return self._boots.session is not None and bool(self._boots.session.clock_conflict)

    def now(self) -> float | None:
        """Verified Unix time in seconds, or None."""
        session = self._boots.session
        ms = None if session is None else session.now_ms(mono_ms())
        return None if ms is None else ms / 1000

    @property
    def refused(self) -> dict[str, int]:
        """Packets that this side refused, by class of error: "Replay", "NoKey", ..."""
        return dict(self._boots.refused)

    @property
    def notices(self) -> list[Notice]:
        """The newest refusals that no call raised."""
        return list(self._desk.notices)

    @property
    def news(self) -> list[News]:
        """The newest that policy families have told without having been asked."""
        return list(self._desk.news)

    # --- inside ----------------------------------------------------------------------------------

    def _fresh(self) -> None:
        state = self._state
        if isinstance(state, str | os.PathLike):
            state = StateFile(state)
        o = self.options
        self._boots = boots = Boots(
            copy.copy(self._identity), state, o.known_tlv, o.settle, speech(o.protocol, o.expiry)
        )
        self._desk = desk = Desk(o, self._on_notice, self._on_news)
        desk.on_release = self._on_release
        door = Door(boots, desk, self.host, self.port, o, self._provision, self._renew)
        self._life = Life(boots, desk, door, o, self._on_state)
        self._life.on_lost = self._on_lost
        self._operations = Operations(boots, desk, self._life, o)

    def _running(self) -> Operations:
        if not self._live:
            raise Closed("the client is not connected")
        return self._operations


def read_enrolment(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """What an enrolment file holds: JSON, an object. Malformed, OSError."""
    try:
        data = json.loads(Path(path).read_bytes())
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise Malformed(f"{os.fspath(path)} is no enrolment file: it is no JSON object")
    return data


def check_private(path: str | os.PathLike[str]) -> None:
    """An enrolment that others can read is none any more: refused, as ssh refuses such a key.
    Exposed, OSError."""
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode) and mode & 0o077:
        shown = os.fspath(path)
        raise Exposed(
            f"{shown} holds a secret and others can read it (mode {mode & 0o777:04o})",
            f"chmod 600 {shown} (on a stick without modes: copy it first); if somebody has "
            "read it: sealmq client rotate",
        )


def address(enrolment: Mapping[str, Any]) -> tuple[str, int]:
    """The mediator's (host, port) of an enrolment. Malformed."""
    try:
        host, port = enrolment["mediator"]["host"], enrolment["mediator"]["port"]
    except (KeyError, TypeError):
        raise Malformed("enrolment file: the mediator's address is missing") from None
    if not isinstance(host, str) or not host or type(port) is not int or not 0 < port < 65536:
        raise Malformed("enrolment file: the mediator's address has the wrong form")
    return host, port


def _draft(
    topic: str,
    payload: Payload,
    qos: int,
    retain: bool,
    life: int,
    tlv: Mapping[int, bytes] | None,
    put: Mapping[str, Sequence[str]] | None,
) -> Draft:
    raw = _checked(topic)
    try:
        if isinstance(payload, str):
            data = payload.encode()
        else:
            # Not bytes(21), which has 21 zeros.
            data = payload if type(payload) is bytes else bytes(memoryview(payload))
    except UnicodeEncodeError:
        raise Malformed("a payload of text that UTF-8 cannot hold") from None
    except TypeError:
        what = f"a payload of type {type(payload).__name__}; it is bytes or a text"
        raise Misuse(what) from None
    if len(data) > MAX_PAYLOAD:
        raise TooLarge(f"a payload of {len(data)} bytes; at most {MAX_PAYLOAD} are taken")
    if qos not in (0, 1, 2):
        raise Malformed(f"QoS {qos}; it is 0, 1 or 2")
    if not (0 <= life <= 31 or life == LIFE_FOREVER):
        raise Malformed(f"life {life}; it is 0 to 31 or {LIFE_FOREVER}")
    kind = RETAINED if retain else LIVE
    if put:
        tlv = {**registry.items(put), **(tlv or {})}
    block = publishers(tlv.items()) if tlv else EMPTY
    # NamedTuple's own constructor takes as long as all of this.
    return _new(Draft, (topic, raw, data, qos, retain, kind, life, block, False))


@functools.lru_cache(_TOPICS)
def _checked(topic: str) -> bytes:
    raw = check_topic(_text(topic))
    if is_reserved(topic):
        # The mediator could not say whose packet it refuses: it looks no further than the topic.
        reason = f"topics that begin with {topic[0]} are reserved"
        raise from_notice((1, 0, Denied.code, "labels.publish.reserved", reason))
    return raw


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Malformed(f"not text that UTF-8 can hold: {text!r}") from None
    return text
