"""The way to the key generator: its unix socket, from the mediator and from the command line.

Frames are u32 length and a UTF-8 JSON object, both ways. Calls may overlap on one connection; each
answer carries its call's id. Nothing of the key generator's own code is imported here. Key
material passes through as hex in dicts: do not log them.

A link slot, in a snapshot's clients and beside a provisioning answer, is
`{"gen": n, "epoch": e, "km": hex, "pending": bool}`. `epoch` is that of the client's label whose
roots went out with this gen, and no other epoch ever did: the key generator makes a new gen when
the label's epoch has risen. So a proof's gen, and the gen of an answer that was passed on, tell
which epoch the client holds. A client has at most one slot that is not pending, the oldest.

A client in a snapshot has, besides, `ended`: connections of generations up to that one are over,
because the client was disabled, removed, rotated or relabelled since; 0 if it never was. `since` is
the Unix time at which it was added: who bore its name before that was another client.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sealmq.site.differences import Difference
from sealmq.site.model import Peer
from sealmq.unix import short_path

from .kgtypes import (
    KINDS,
    MAX_ENROL,
    Answer,
    Applied,
    Change,
    Hello,
    KgBad,
    KgChanged,
    KgDenied,
    KgError,
    KgForbidden,
    KgUnauthentic,
    KgUnavailable,
    KgUnknown,
    NewEpoch,
)

__all__ = [
    "MAX_FRAME",
    "Answer",
    "Applied",
    "Change",
    "Hello",
    "KgBad",
    "KgChanged",
    "KgClient",
    "KgDenied",
    "KgError",
    "KgForbidden",
    "KgUnauthentic",
    "KgUnavailable",
    "KgUnknown",
    "NewEpoch",
]

MAX_FRAME = 4 * 1024 * 1024
SNAPSHOT_LISTS = (
    "labels", "older", "order", "clients", "records", "manifests", "grants", "older_grants",
    "holders", "told",
)  # fmt: skip
"""The lists of a snapshot, of which each piece has some entries."""
CALL_S = 10.0
# Re-reading a large policy draws many keys; a snapshot of a large site opens many.
RELOAD_S = 120.0
# For mediators that are to hear of what was lent.
LENT_TRIES, LENT_PAUSE_S = 200, 0.01
# struct ucred: pid, uid, gid (unix(7)).
_CRED = struct.Struct("3i")


def _may_serve(credentials: bytes, path: str | os.PathLike[str]) -> bool:
    """Whether the process behind the socket may be the site's key generator.

    Root, the owner of the key generator's state, and we ourselves may: nobody else has a say where
    the socket stands, and this holds where somebody has.
    """
    uid = _CRED.unpack(credentials)[1]
    allowed = {0, os.geteuid()}
    with contextlib.suppress(OSError):
        allowed.add((Path(path).absolute().parents[2] / "state" / "kg").stat().st_uid)
    return uid in allowed


@dataclass(frozen=True, slots=True)
class Crossings:
    """What crosses. clients: peer, label, out, number, enrolment (secret), disabled, site, there of
    each client of the bridge. names: of those that publish under exported labels. text: sealmq.toml
    as it is in force, policy: its digest.
    """

    peers: Mapping[str, Peer]
    clients: list[dict[str, Any]] = field(repr=False)
    names: Mapping[int, str]
    text: str = field(repr=False)
    kseq: int
    policy: str


@dataclass(frozen=True, slots=True)
class Across:
    """A border. reads, publishes: enrolment (secret) and disabled of each of its clients. senders:
    who may have published under the label that it opens. text, policy: as of Crossings.
    """

    reads: dict[str, Any] = field(repr=False)
    publishes: dict[str, Any] = field(repr=False)
    senders: Mapping[int, str]
    text: str = field(repr=False)
    kseq: int
    policy: str


class KgClient:
    """One connection. Make it with `connect`; `async with` closes it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next_id = 0
        self._kseq: int | None = None
        self._changes: dict[int | None, int] = {}
        self._changed = asyncio.Event()
        self._version: tuple[int, str] | None = None
        self._lost: KgError | None = None
        self._task = asyncio.create_task(self._read(), name="kg-link")

    @classmethod
    async def connect(cls, path: str | os.PathLike[str]) -> KgClient:
        """Connect to run/kg/kg.sock. KgUnavailable when nobody listens, KgForbidden (one of these)
        when this user may not connect.
        """
        try:
            with short_path(path) as short:
                async with asyncio.timeout(CALL_S):
                    reader, writer = await asyncio.open_unix_connection(short)
        except PermissionError:
            raise KgForbidden(
                f"{os.fspath(path)}: permission denied", "run it as the site's owner or as root"
            ) from None
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "strerror", None) or "it does not answer"
            raise KgUnavailable(
                f"the key generator cannot be reached: {reason}", "is `sealmq up` running?"
            ) from None
        peer = writer.get_extra_info("socket")
        if not _may_serve(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CRED.size), path):
            writer.close()
            raise KgDenied(
                f"{os.fspath(path)} is served by somebody who is not the key generator",
                "stop the site and look who took the socket's place",
            )
        return cls(reader, writer)

    async def __aenter__(self) -> KgClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection. Calls that wait fail with KgUnavailable."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        return self._lost is not None

    # --- what a mediator asks -------------------------------------------------------------------

    async def hello(self, mediator: int, store: bytes) -> Hello:
        """Introduce this mediator and the store that it keeps (16 bytes); draws a new inst."""
        got = await self._call("hello", mediator=mediator, store=store.hex())
        return Hello(bytes.fromhex(got["site"]), int(got["inst"]))

    async def snapshot(self) -> dict[str, Any]:
        """All that a mediator may know: site, kseq, the digest of the policy, closed, and lists."""
        for _ in range(5):
            whole = await self._call("snapshot", wait=RELOAD_S)
            try:
                while "next" in whole:
                    at = whole.pop("next")
                    part = await self._call("snapshot", wait=RELOAD_S, at=at, kseq=whole["kseq"])
                    for name in SNAPSHOT_LISTS:
                        whole[name] += part[name]
                    if "next" in part:
                        whole["next"] = part["next"]
            except KgChanged:
                continue
            del whole["id"], whole["ok"]
            self._kseq = int(whole["kseq"])
            return whole
        raise KgUnavailable("the keys keep changing while they are fetched")

    async def answer(self, packet: bytes) -> Answer:
        """The answer to a client's provisioning request (SPEC.md 7.2)."""
        got = await self._call("answer", packet=packet.hex())
        packet = bytes.fromhex(got["packet"])
        return Answer(packet, int(got["client"]), int(got["kseq"]), int(got["gen"]), got["links"])

    async def time(self, client: int, nonce: bytes, suite: int) -> bytes:
        """KG time for a client (SPEC.md 7.3): 43 bytes. nonce: N_c, 16 bytes."""
        got = await self._call("time", client=client, nonce=nonce.hex(), suite=suite)
        return bytes.fromhex(got["blob"])

    async def confirm(self, client: int, gen: int) -> None:
        """The client has proved that it holds `gen`: the older link slot ends."""
        await self._call("confirm", client=client, gen=gen)

    async def in_force(self, known: str) -> str | None:
        """The text of the sealmq.toml that was taken over last; None: it is that of this digest."""
        for _ in range(5):
            got = await self._call("in-force", known=known)
            text, policy = got.get("text"), got["policy"]
            try:
                while "next" in got:
                    got = await self._call("in-force", at=got["next"], policy=policy)
                    text += got["text"]
            except KgChanged:
                continue
            return text
        raise KgUnavailable("sealmq.toml keeps changing while it is fetched")

    async def took(self, kseq: int, policy: str) -> None:
        """This mediator goes by these keys, and by the policy of this digest."""
        await self._call("took", kseq=kseq, policy=policy)

    async def changes(self) -> AsyncIterator[Change]:
        """Each change since this connection's last snapshot; several may come as one.

        Raises KgUnavailable when the connection ends.
        """
        now = int((await self._call("watch"))["kseq"])
        if self._kseq not in (None, now):
            self._changes.setdefault(None, now)
        while True:
            while self._changes:
                client = next(iter(self._changes))
                yield Change(self._changes.pop(client), client)
            if self._lost is not None:
                raise self._lost
            self._changed.clear()
            await self._changed.wait()

    # --- what the operator's commands ask -------------------------------------------------------

    async def reload(self) -> Applied:
        """Read sealmq.toml again. KgBad, with nothing changed, when it is wrong."""
        return _applied(await self._call("reload", wait=RELOAD_S))

    async def hold(self, client: str, out: bool) -> Applied:
        """Put a client out, whatever sealmq.toml says; or let it say again who is out."""
        return _applied(await self._call("hold", wait=RELOAD_S, client=client, out=out))

    async def policy(self) -> str:
        """The text of the sealmq.toml in force: the one that was taken over last."""
        return str((await self._call("policy"))["text"])

    async def keep(self, family: str, said: str) -> Applied:
        """Have a policy family keep that. KgBad, with nothing changed, when it cannot be."""
        return _applied(await self._call("keep", wait=RELOAD_S, family=family, said=said))

    async def kept(self, family: str) -> str:
        """What a policy family keeps, as it was given."""
        return str((await self._call("kept", family=family))["text"])

    async def mediators(self) -> list[dict[str, Any]]:
        """Each one that is connected: mediator (its number), pid, and what it said last that it
        goes by: kseq (0 before it says so), policy (Config.digest).
        """
        rows: list[dict[str, Any]] = (await self._call("mediators"))["mediators"]
        return rows

    async def rekey(self, labels: list[str], handover_s: int, below: bool = False) -> Applied:
        """New epochs for labels, with `below` for all that they dominate as well.

        The old ones stay good for live messages that many seconds.
        """
        return _applied(
            await self._call(
                "rekey", wait=RELOAD_S, labels=labels, handover_s=handover_s, below=below
            )
        )

    async def reopen(self) -> bool:
        """Let a closed site go on with what the mediator's store holds; False: it was open."""
        return bool((await self._call("reopen"))["reopened"])

    async def enrol(self, client: str) -> dict[str, Any]:
        """The enrolment of a client (SPEC.md 7.1). It holds the client's secret."""
        return (await self.enrolments([client]))[0]

    async def enrolments(self, clients: Sequence[str]) -> list[dict[str, Any]]:
        """Those of several, in their order."""
        made: list[dict[str, Any]] = []
        for at in range(0, len(clients), MAX_ENROL):
            got = await self._call("enrol", clients=clients[at : at + MAX_ENROL])
            made += got["enrolments"]
        return made

    async def lend(self, client: str) -> tuple[dict[str, Any], bytes]:
        """(enrolment, dump of a provisioned sealmq_spec Identity) to act as that client.

        Returns once the mediators know the generation that was lent, or after two seconds: one
        that has not heard of it yet would refuse its proof.
        """
        got = await self._call("lend", client=client)
        for _ in range(LENT_TRIES):
            if all(row["kseq"] >= got["kseq"] for row in await self.mediators()):
                break
            await asyncio.sleep(LENT_PAUSE_S)
        return got["enrolment"], bytes.fromhex(got["identity"])

    # --- what a bridge asks ---------------------------------------------------------------------

    async def peer_enrol(self) -> Crossings:
        """What crosses, by the policy in force."""
        got = await self._call("peer-enrol")
        peers = {row["name"]: _peer(row) for row in got["peers"]}
        names = {int(number): str(name) for number, name in got["names"].items()}
        return Crossings(peers, got["clients"], names, got["text"], int(got["kseq"]), got["policy"])

    def peer_watch(self) -> AsyncIterator[tuple[int, str]]:
        """kseq and the digest of the policy in force: those of now, and the latest whenever keys of
        labels or the policy may have changed. KgUnavailable when the connection ends.
        """
        return self._versions("peer-watch")

    async def peer_give(self, peer: str, certificate: bytes) -> bytes:
        """What the peer's key generator is to have, sealed for it."""
        got = await self._call("peer-give", peer=peer, certificate=certificate.hex())
        return bytes.fromhex(got["packet"])

    async def peer_take(self, peer: str, certificate: bytes, packet: bytes) -> dict[str, int]:
        """Hand on what the peer's key generator gave: its labels that come here, and its numbers
        for them.
        """
        got = await self._call(
            "peer-take", peer=peer, certificate=certificate.hex(), packet=packet.hex()
        )
        return {str(label): int(number) for label, number in got["labels"].items()}

    # --- what a border asks ---------------------------------------------------------------------

    async def border_enrol(self, name: str) -> Across:
        """Its clients and what it is, by the policy in force. KgUnknown: it is none any more."""
        got = await self._call("border-enrol", border=name)
        senders = {int(number): str(who) for number, who in got["senders"].items()}
        ends = got["in"], got["out"]
        return Across(*ends, senders, got["text"], int(got["kseq"]), got["policy"])

    def border_watch(self) -> AsyncIterator[tuple[int, str]]:
        """As `peer_watch`."""
        return self._versions("border-watch")

    async def _versions(self, op: str) -> AsyncIterator[tuple[int, str]]:
        got = await self._call(op)
        yield int(got["kseq"]), str(got["policy"])
        while True:
            while self._version is not None:
                now, self._version = self._version, None
                yield now
            if self._lost is not None:
                raise self._lost
            self._changed.clear()
            await self._changed.wait()

    async def clients(self) -> list[dict[str, Any]]:
        """number, name, label, kind, suite, disabled, removed, rotation, gen, pending.

        gen: the confirmed one; pending: the newest that is not; 0 for none.
        """
        got = await self._call("clients")
        rows: list[dict[str, Any]] = got["clients"]
        return rows

    async def labels(self) -> list[dict[str, Any]]:
        """number, name, suite, epoch, removed."""
        got = await self._call("labels")
        rows: list[dict[str, Any]] = got["labels"]
        return rows

    async def status(self) -> dict[str, Any]:
        """site, kseq, inst, pid, user, counts."""
        return await self._call("status")

    # --- frames ---------------------------------------------------------------------------------

    async def _call(self, op: str, wait: float = CALL_S, **fields: Any) -> dict[str, Any]:
        if self._lost is not None:
            raise self._lost
        self._next_id += 1
        number = self._next_id
        body = json.dumps({"op": op, "id": number, **fields}).encode()
        if len(body) > MAX_FRAME:
            raise KgBad(f"a request of {len(body)} bytes, at most {MAX_FRAME} fit")
        done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._calls[number] = done
        try:
            self._writer.write(len(body).to_bytes(4, "big") + body)
            async with asyncio.timeout(wait):
                return _checked(await done)
        except TimeoutError:
            raise KgUnavailable(f"the key generator did not answer {op} in {wait:.0f} s") from None
        except OSError:
            raise KgUnavailable("the connection to the key generator broke") from None
        finally:
            self._calls.pop(number, None)

    async def _read(self) -> None:
        reason = "the key generator closed the connection"
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                if size > MAX_FRAME:
                    reason = f"the key generator sent a frame of {size} bytes"
                    break
                self._take(json.loads(await self._reader.readexactly(size)))
        except (asyncio.IncompleteReadError, OSError):
            pass
        except (ValueError, TypeError):
            reason = "the key generator sent what is no frame of ours"
        finally:
            self._end(KgUnavailable(reason, "is `sealmq up` running?"))

    def _take(self, frame: Any) -> None:
        if not isinstance(frame, dict):
            raise ValueError("no object")
        if frame.get("event") == "changed":
            client = frame.get("client")
            self._changes[client] = int(frame["kseq"])
            self._changed.set()
            return
        if frame.get("event") == "now":
            self._version = int(frame["kseq"]), str(frame["policy"])
            self._changed.set()
            return
        if frame.get("id") == 0 and frame.get("ok") is False:
            # To no call of ours: we were sent away, or what we sent was no frame.
            self._lost = _error(frame)
            return
        done = self._calls.get(frame.get("id", 0))
        if done is not None and not done.done():
            done.set_result(frame)

    def _end(self, error: KgError) -> None:
        error = self._lost = self._lost or error
        self._changed.set()
        self._writer.close()
        for done in self._calls.values():
            if not done.done():
                done.set_exception(error)


def _peer(told: Mapping[str, Any]) -> Peer:
    sides = {side: tuple(told[side]) if told[side] else None for side in ("address", "listen")}
    return Peer(
        told["name"],
        told["fingerprint"],
        exports=tuple(told["exports"]),
        imports=tuple(told["imports"]),
        give=None if told["give"] is None else tuple(told["give"]),
        far=bool(told["far"]),
        **sides,
    )


def _applied(got: Mapping[str, Any]) -> Applied:
    return Applied(
        int(got["kseq"]),
        bool(got["changed"]),
        list(got["notes"]),
        [(row["client"], row["label"], row["why"]) for row in got["left"]],
        [NewEpoch(row["label"], int(row["epoch"]), int(row["until"])) for row in got["epochs"]],
        [Difference(row["key"], row["was"], row["now"]) for row in got["differences"]],
    )


def _checked(frame: Mapping[str, Any]) -> dict[str, Any]:
    if frame.get("ok") is True:
        return dict(frame)
    raise _error(frame)


def _error(frame: Mapping[str, Any]) -> KgError:
    kind = KINDS.get(str(frame.get("code")), KgError)
    hint = frame.get("hint")
    return kind(str(frame.get("error", "refused")), hint if isinstance(hint, str) else None)
