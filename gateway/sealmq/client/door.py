"""How a client gets to a welcomed connection: provisioning, CONNECT, and what "behind" asks for.

SPEC.md 4.1 and 7.2. Each attempt either leaves an open, welcomed connection or nothing.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from sealmq.mqtt import build
from sealmq_spec.errors import Malformed, SealError, Unauthentic
from sealmq_spec.identity import Identity
from sealmq_spec.session import Session

from . import backoff
from . import events as ev
from .boot import Boots
from .core import Core
from .desk import Desk
from .errors import (
    ClientError,
    ConnectFailed,
    ConnectionLost,
    NotAuthorised,
    StateError,
    TimedOut,
    refusal,
)
from .opening import Quarantine, ask, connect
from .randomness import mono_ms, new_nonce
from .speech import speech
from .values import Notice, Options
from .wire import Wire

# New roots by another way than ps: the operator's tools are lent them anew.
Renew = Callable[[], Awaitable[Identity]]

_TRIES = 12
# Several that begin at once (`sealmq pub` of a script, say) take the same boot, and all but one of
# them are behind: from the third try on each waits for a random time below so much more.
_CROWD_S = 0.1
_LONG_AGO = -(1 << 62)
_ROTATED = (
    "it may know another secret of this client: after `sealmq client rotate` the new enrolment "
    "file counts, and after `sealmq restore` who was added since the backup needs a new one"
)
_UNKNOWN = "a new boot session began before the answer came; whether it was accepted is unknown"


class Opened:
    """A welcomed connection. `early`: what came in one piece with the welcome."""

    def __init__(self, wire: Wire, core: Core, early: list[ev.Event], kg_asked: int) -> None:
        self.wire, self.core, self.early = wire, core, early
        # mono of the last request for KG time.
        self.kg_asked = kg_asked
        # N_c of the provisioning request that is open, and who waits for its answer.
        self.asked = b""
        self.answered: asyncio.Future[None] | None = None


class Door:
    """Opens connections to one mediator for one client."""

    def __init__(
        self,
        boots: Boots,
        desk: Desk,
        host: str,
        port: int,
        options: Options,
        provision: bool,
        renew: Renew | None,
    ) -> None:
        self._boots, self._desk, self._options = boots, desk, options
        self._host, self._port = host, port
        self._provision, self._renew = provision, renew
        self._client_id = options.client_id or f"sealmq-{secrets.token_hex(8)}"
        self._kg_asked = 0

    @property
    def may_renew(self) -> bool:
        """Whether there is any way to new roots."""
        return self._provision or self._renew is not None

    async def open(self) -> Opened:
        """A welcomed connection, and what has to come before it. Raises ClientError, SealError."""
        asked = False
        for tried in range(_TRIES):
            if tried > 1:
                await asyncio.sleep(tried * _CROWD_S * backoff.draw())
            if not self._boots.identity.gen or self._boots.spent:
                await self._new_roots()
                asked = True
                if self._boots.spent:
                    raise StateError("the client's boot counter is used up, and no higher gen came")
            try:
                opened = await self._connect()
            except NotAuthorised:
                if asked or not self.may_renew:
                    raise
                # The roots may be of a generation that has ended (SPEC.md 7.2).
                await self._new_roots()
                asked = True
                continue
            if isinstance(opened, Opened):
                return opened
            if isinstance(opened, ev.OtherTime):
                self._boots.leave()
                self.end_session()
                continue
            session = self._boots.session
            above = session is not None and session.boot > opened.floor
            self.end_session()
            self._boots.behind(opened.floor)
            if above and not asked and self.may_renew:
                # Not boot is too low, but gen (SPEC.md 4.1).
                await self._new_roots()
                asked = True
        raise ConnectFailed(
            f"the mediator called this client's boot or time wrong {_TRIES} times",
            "very many that begin to act as this client in the same moment look like that",
        )

    def end_session(self) -> None:
        """The boot session is over: nothing of it is sent again, and no answer to it will come."""
        self._desk.fail(ConnectionLost(_UNKNOWN))
        self._boots.end()

    async def renew(self, opened: Opened) -> None:
        """New roots while a connection is open, stored and in use there. Raises ClientError,
        SealError.

        Asked for with the pre-shared secret also where roots are lent: by the answer the mediator
        knows what this client can read.
        """
        opened.asked = new_nonce()
        opened.answered = asyncio.get_running_loop().create_future()
        request = ask(self._boots.identity, opened.core.session.boot, opened.asked)
        opened.wire.send(opened.core.control(request))
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                await opened.answered
        except TimeoutError:
            raise TimedOut("no answer to the request for new roots") from None
        finally:
            opened.asked, opened.answered = b"", None

    async def answered(self, opened: Opened, packet: bytes) -> None:
        """An answer has come. What is none to our question changes nothing, and is counted."""
        waiting = opened.answered
        if waiting is None or waiting.done():
            self._boots.refused["Stale"] += 1
            return
        try:
            await self._boots.take_answer(opened.asked, packet)
        except (Malformed, Unauthentic) as error:
            self._boots.refused[type(error).__name__] += 1
        except (ClientError, SealError) as error:
            if not waiting.done():
                waiting.set_exception(error)
        else:
            self._boots.turn(opened.core.session)
            if not waiting.done():
                waiting.set_result(None)

    def refused(self, opened: Opened, notice: Notice) -> None:
        """A notice that may be about our request for roots."""
        waiting = opened.answered
        if notice.what == "control" and not notice.ctr and waiting and not waiting.done():
            waiting.set_exception(
                refusal("provisioning", "", notice.code, notice.rule, notice.reason)
            )

    async def _connect(self) -> Opened | ev.Behind | ev.OtherTime:
        """One TCP connection up to its welcome. Raises ClientError."""
        session = self._boots.session
        if session is not None and (self._boots.worn() or self._boots.take_up(session) is None):
            self.end_session()
            session = None
        session = session or await self._boots.begin()
        wire: Wire | None = None
        core = self._boots.core(session)
        # Only the first CONNECT of a boot session may ask for it; behind others op 0x82 does.
        want_kg_time = not session.kg_time and not session.conn
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                wire = await Wire.open(self._host, self._port)
                if want_kg_time:
                    self._kg_asked = mono_ms()
                elif not session.kg_time:
                    self._kg_asked = _LONG_AGO
                wire.send(self._connect_packet(session, want_kg_time))
                events: list[ev.Event] = []
                while not events:
                    data = await wire.read()
                    events = core.receive(data, mono_ms())
            first, *early = events
            if isinstance(first, ev.Fault):
                raise first.error
            if isinstance(first, ev.Ready):
                opened = Opened(wire, core, early, self._kg_asked)
                wire = None
                return opened
            if isinstance(first, ev.OtherTime):
                # A goodbye: the will is for those who vanish.
                wire.goodbye(build.disconnect())
            if isinstance(first, ev.Behind | ev.OtherTime):
                return first
            raise ConnectFailed(f"{type(first).__name__} where a welcome was due")
        except TimeoutError:
            raise ConnectFailed(
                f"{self._host}:{self._port} did not answer "
                f"within {self._options.connect_timeout:g} s"
            ) from None
        except asyncio.CancelledError:
            if wire is not None:  # the gateway may be about to say welcome: no will fires
                wire.goodbye(build.disconnect())
            raise
        finally:
            if wire is not None:
                await wire.close()

    def _connect_packet(self, session: Session, want_kg_time: bool) -> bytes:
        o, low = self._options, self._boots.outbox.low()
        return connect(
            session, self._client_id, o.clean, o.keepalive, o.will, want_kg_time, low, mono_ms(),
            speech(o.protocol, o.expiry),
        )  # fmt: skip

    async def _new_roots(self) -> None:
        """Roots without a connection: by `renew`, or by provisioning in quarantine."""
        if self._renew is not None:
            await self._boots.adopt(await self._renew())
            return
        if not self._provision:
            raise NotAuthorised(5)
        nonce_c = new_nonce()
        boot, salt = self._boots.next
        quarantine = Quarantine(self._boots.identity, boot, salt, nonce_c, self._client_id)
        answer = await asked(quarantine, self._host, self._port, self._options.connect_timeout)
        await self._boots.take_answer(nonce_c, answer)


async def asked(quarantine: Quarantine, host: str, port: int, within: float) -> bytes:
    """The answer to a request for roots, in a connection of its own. Raises ClientError."""
    wire: Wire | None = None
    answer: bytes | None = None
    try:
        async with asyncio.timeout(within):
            wire = await Wire.open(host, port)
            wire.send(quarantine.connect())
            while answer is None:
                out, answer = quarantine.receive(await wire.read())
                wire.send(out)
        return answer
    except TimeoutError:
        raise ConnectFailed(f"no provisioning answer within {within:g} s") from None
    except ConnectionLost as error:
        # All that a gateway says to a question under a secret that does not verify.
        raise ConnectionLost(f"{error}, asked for keys", _ROTATED) from None
    finally:
        if wire is not None:
            await wire.close()
