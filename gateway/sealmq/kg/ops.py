"""The operations of the socket: who may ask for which, what fields they take, what they give.

Nothing of a request is trusted: every field is checked here before the key generator sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sealmq.kgtypes import MAX_ENROL, Applied
from sealmq.run import proc
from sealmq.site.config import load
from sealmq.site.errors import ConfigError
from sealmq_spec.const import ASK_LEN, U24

from .closing import STORE_BYTES
from .core import Kg
from .errors import Bad, Changed, Denied, Unknown

MEDIATOR = "mediator"
ADMIN = "admin"
BRIDGE = "bridge"
BORDER = "border"
_U32 = 0xFFFF_FFFF
_MAX_ENTRIES = 10_000_000
_MAX_NAME = 64
MAX_HANDOVER_S = 366 * 86400
TEXT = 1 << 18
"""Characters of sealmq.toml in one answer: as JSON each has twelve bytes at most."""

Fields = Mapping[str, Any]
# event, and public fields
Event = Callable[..., None]


@dataclass(slots=True)
class Peer:
    """The other end of a connection, by SO_PEERCRED.

    `mediator`: which one it is by its last `hello` here; 0 before. kseq, policy: what it has said
    that it goes by.
    """

    pid: int
    uid: int
    roles: frozenset[str]
    mediator: int = 0
    kseq: int = 0
    policy: str = ""

    @property
    def user(self) -> str:
        """The name of its user, for the log."""
        return proc.name_of(self.uid)


class Ops:
    """One method an operation. `kg` is used from one thread; so must `run` be.

    `peers`: whoever is connected, told by the server.
    """

    def __init__(self, kg: Kg, config: Path, event: Event) -> None:
        self._kg, self._config, self._event = kg, config, event
        self.peers: tuple[Peer, ...] = ()

    def run(self, peer: Peer, op: object, fields: Fields) -> dict[str, Any]:
        """The answer's fields, or a KgRefusal."""
        found = _TABLE.get(op) if isinstance(op, str) else None
        if found is None:
            shown = op[:32] if isinstance(op, str) else type(op).__name__
            raise Unknown(f"there is no operation {shown!r}")
        role, call = found
        if role not in peer.roles:
            raise Denied(
                f"user {peer.user} is no {role} here",
                "only root and the site's owner administer it" if role == ADMIN else None,
            )
        return call(self, peer, fields)

    # --- mediator ---------------------------------------------------------------------------------

    def hello(self, peer: Peer, f: Fields) -> dict[str, Any]:
        number = _number(f, "mediator", 1, U24)
        store = _hex(f, "store", STORE_BYTES)
        site, inst = self._kg.hello(number)
        closed = self._kg.meet(store)
        if closed:
            self._event("site-closed", reason=closed)
        peer.mediator = number
        return {"site": site.hex(), "inst": inst}

    def snapshot(self, peer: Peer, f: Fields) -> dict[str, Any]:
        at = _number(f, "at", 0, _MAX_ENTRIES) if "at" in f else 0
        kseq = _number(f, "kseq", 0, _U32) if "kseq" in f else None
        return self._kg.snapshot(at, kseq)

    def answer(self, peer: Peer, f: Fields) -> dict[str, Any]:
        packet = _hex(f, "packet", ASK_LEN)
        if not peer.mediator:
            raise Bad("answer comes behind hello: requests are bound to a mediator's number")
        done, links = self._kg.answer(packet, peer.mediator)
        client = done.client
        if done.fresh:
            self._event("client-provisioned", client=client.name, gen=done.gen)
        return {
            "packet": done.packet.hex(),
            "client": client.number,
            "kseq": done.kseq,
            "gen": done.gen,
            "links": links,
        }

    def watch(self, peer: Peer, f: Fields) -> dict[str, Any]:
        """The server sends the events; this says from where on."""
        return {"kseq": self._kg.status()["kseq"]}

    def time(self, peer: Peer, f: Fields) -> dict[str, Any]:
        client = _number(f, "client", 1, U24)
        blob = self._kg.time(client, _hex(f, "nonce", 16), _number(f, "suite", 1, 15))
        return {"blob": blob.hex()}

    def confirm(self, peer: Peer, f: Fields) -> dict[str, Any]:
        client = _number(f, "client", 1, U24)
        self._kg.confirm(client, _number(f, "gen", 1, U24))
        return {"links": self._kg.links(client)}

    def in_force(self, peer: Peer, f: Fields) -> dict[str, Any]:
        """A part of sealmq.toml as it was taken over last, unless it is the one that is `known`."""
        config = self._kg.config
        if f.get("known") == config.digest:
            return {"policy": config.digest}
        at = _number(f, "at", 0, _U32) if "at" in f else 0
        if at and f.get("policy") != config.digest:
            raise Changed("the policy has changed; begin anew")
        end = at + TEXT
        more = {"next": end} if end < len(config.text) else {}
        return {"policy": config.digest, "text": config.text[at:end], **more}

    def took(self, peer: Peer, f: Fields) -> dict[str, Any]:
        """The mediator goes by these keys and this policy: nobody whom they put out is served."""
        policy = f.get("policy")
        if not isinstance(policy, str) or len(policy) > _MAX_NAME:
            raise Bad(f"policy is a digest of at most {_MAX_NAME} characters")
        peer.kseq, peer.policy = _number(f, "kseq", 0, _U32), policy
        return {}

    # --- admin ------------------------------------------------------------------------------------

    def mediators(self, peer: Peer, f: Fields) -> dict[str, Any]:
        found = [p for p in self.peers if p.mediator]
        return {
            "mediators": [
                {"mediator": p.mediator, "pid": p.pid, "kseq": p.kseq, "policy": p.policy}
                for p in sorted(found, key=lambda p: (p.mediator, p.pid))
            ]
        }

    def reload(self, peer: Peer, f: Fields) -> dict[str, Any]:
        return _told(self.reread())

    def reread(self) -> Applied:
        """Read sealmq.toml again and apply it; Bad when it is wrong, and then nothing changed."""
        try:
            config = load(self._config)
        except ConfigError as error:
            raise Bad(str(error), error.hint) from None
        except OSError as error:
            raise Bad(f"sealmq.toml cannot be read: {error.strerror}") from None
        return self._write(self._kg.apply(config))

    def hold(self, peer: Peer, f: Fields) -> dict[str, Any]:
        name, out = _checked_name(f.get("client")), f.get("out")
        if type(out) is not bool:
            raise Bad("out is true or false")
        return _told(self._write(self._kg.hold(name, out)))

    def policy(self, peer: Peer, f: Fields) -> dict[str, Any]:
        return {"text": self._kg.config.text}

    def keep(self, peer: Peer, f: Fields) -> dict[str, Any]:
        said = f.get("said")
        if not isinstance(said, str):
            raise Bad("said is a text")
        family = _checked_name(f.get("family"))
        return _told(self._write(self._kg.keep(family, said.encode("utf-8", "surrogatepass"))))

    def kept(self, peer: Peer, f: Fields) -> dict[str, Any]:
        return {"text": self._kg.kept(_checked_name(f.get("family"))).decode()}

    def rekey(self, peer: Peer, f: Fields) -> dict[str, Any]:
        names = f.get("labels")
        if not isinstance(names, list) or not names:
            raise Bad("labels is a list of names")
        picked = sorted({_checked_name(name) for name in names})
        below = f.get("below", False)
        if type(below) is not bool:
            raise Bad("below is true or false")
        handover_s = _number(f, "handover_s", 0, MAX_HANDOVER_S)
        return _told(self._write(self._kg.rekey(picked, handover_s, below)))

    def _write(self, done: Applied) -> Applied:
        if done.changed:
            self._event("keys-changed", kseq=done.kseq, notes=done.notes)
        for client, label, why in done.left:
            self._event("client-left", client=client, label=label, reason=why)
        for new in done.epochs:
            self._event(
                "epoch", label=new.label, epoch=new.epoch, kseq=done.kseq, handover_end_s=new.until
            )
        return done

    def reopen(self, peer: Peer, f: Fields) -> dict[str, Any]:
        reopened = self._kg.reopen()
        if reopened:
            self._event("site-reopened", user=peer.user)
        return {"reopened": reopened}

    def enrol(self, peer: Peer, f: Fields) -> dict[str, Any]:
        names = f.get("clients")
        if not isinstance(names, list) or not 0 < len(names) <= MAX_ENROL:
            raise Bad(f"clients is a list of 1 to {MAX_ENROL} names")
        made = self._kg.enrolments([_checked_name(name) for name in names])
        for one in made:
            self._event("client-enrolled", client=one["name"], user=peer.user, number=one["client"])
        return {"enrolments": made}

    def lend(self, peer: Peer, f: Fields) -> dict[str, Any]:
        name = _checked_name(f.get("client"))
        enrolment, identity = self._kg.lend(name)
        self._event("client-lent", client=name, user=peer.user)
        kseq = self._kg.kseq()
        return {"enrolment": enrolment, "identity": identity.hex(), "kseq": kseq}

    # --- bridge -----------------------------------------------------------------------------------

    def peer_enrol(self, peer: Peer, f: Fields) -> dict[str, Any]:
        config = self._kg.config
        return {
            "peers": [self._kg.peer(name) for name in config.peers],
            "clients": [row for name in config.peers for row in self._kg.peer_enrol(name)],
            "names": self._kg.publishers(),
            "text": config.text,
            "policy": config.digest,
            "kseq": self._kg.kseq(),
        }

    def now(self, peer: Peer, f: Fields) -> dict[str, Any]:
        """The server sends these again when they change, and nothing else."""
        return {"kseq": self._kg.kseq(), "policy": self.policy_digest}

    @property
    def policy_digest(self) -> str:
        """Of the policy in force."""
        return self._kg.config.digest

    def due(self) -> None:
        """Make the keys that peers have asked for and had to wait for, when they are due."""
        for done in self._kg.peers_due():
            self._write(done)

    def peer_give(self, peer: Peer, f: Fields) -> dict[str, Any]:
        packet = self._kg.peer_give(_checked_name(f.get("peer")), _bytes(f, "certificate"))
        return {"packet": packet.hex()}

    def peer_take(self, peer: Peer, f: Fields) -> dict[str, Any]:
        name = _checked_name(f.get("peer"))
        done, mine = self._kg.peer_take(name, _bytes(f, "certificate"), _bytes(f, "packet"))
        self._write(done)
        return {"labels": mine, "kseq": done.kseq}

    # --- border -----------------------------------------------------------------------------------

    def border_enrol(self, peer: Peer, f: Fields) -> dict[str, Any]:
        found = self._kg.border_enrol(_checked_name(f.get("border")))
        config = self._kg.config
        return {**found, "text": config.text, "policy": config.digest, "kseq": self._kg.kseq()}

    def clients(self, peer: Peer, f: Fields) -> dict[str, Any]:
        return {"clients": self._kg.clients()}

    def labels(self, peer: Peer, f: Fields) -> dict[str, Any]:
        return {"labels": self._kg.labels()}

    def status(self, peer: Peer, f: Fields) -> dict[str, Any]:
        return self._kg.status()


_TABLE: dict[str, tuple[str, Callable[[Ops, Peer, Fields], dict[str, Any]]]] = {
    "hello": (MEDIATOR, Ops.hello),
    "snapshot": (MEDIATOR, Ops.snapshot),
    "answer": (MEDIATOR, Ops.answer),
    "time": (MEDIATOR, Ops.time),
    "watch": (MEDIATOR, Ops.watch),
    "confirm": (MEDIATOR, Ops.confirm),
    "in-force": (MEDIATOR, Ops.in_force),
    "took": (MEDIATOR, Ops.took),
    "reload": (ADMIN, Ops.reload),
    "mediators": (ADMIN, Ops.mediators),
    "hold": (ADMIN, Ops.hold),
    "policy": (ADMIN, Ops.policy),
    "keep": (ADMIN, Ops.keep),
    "kept": (ADMIN, Ops.kept),
    "rekey": (ADMIN, Ops.rekey),
    "reopen": (ADMIN, Ops.reopen),
    "enrol": (ADMIN, Ops.enrol),
    "lend": (ADMIN, Ops.lend),
    "clients": (ADMIN, Ops.clients),
    "labels": (ADMIN, Ops.labels),
    "status": (ADMIN, Ops.status),
    "peer-enrol": (BRIDGE, Ops.peer_enrol),
    "peer-watch": (BRIDGE, Ops.now),
    "peer-give": (BRIDGE, Ops.peer_give),
    "peer-take": (BRIDGE, Ops.peer_take),
    "border-enrol": (BORDER, Ops.border_enrol),
    "border-watch": (BORDER, Ops.now),
}


def _told(done: Applied) -> dict[str, Any]:
    return {
        "kseq": done.kseq,
        "changed": done.changed,
        "notes": done.notes,
        "left": [
            {"client": client, "label": label, "why": why} for client, label, why in done.left
        ],
        "epochs": [{"label": e.label, "epoch": e.epoch, "until": e.until} for e in done.epochs],
        "differences": [row._asdict() for row in done.differences],
    }


# --- fields -------------------------------------------------------------------------------------


def _number(f: Fields, name: str, low: int, high: int) -> int:
    value = f.get(name)
    if type(value) is not int or not low <= value <= high:
        raise Bad(f"{name} is a number from {low} to {high}")
    return value


def _hex(f: Fields, name: str, size: int) -> bytes:
    value = f.get(name)
    try:
        raw = bytes.fromhex(value) if isinstance(value, str) and len(value) == 2 * size else None
    except ValueError:
        raw = None
    if raw is None:
        raise Bad(f"{name} is {size} bytes in hex")
    return raw


_MOST_BYTES = 1 << 19


def _bytes(f: Fields, name: str) -> bytes:
    value = f.get(name)
    try:
        if isinstance(value, str) and 0 < len(value) <= 2 * _MOST_BYTES:
            return bytes.fromhex(value)
    except ValueError:
        pass
    raise Bad(f"{name} is 1 to {_MOST_BYTES} bytes in hex")


def _checked_name(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_NAME:
        raise Bad(f"a name is text of 1 to {_MAX_NAME} characters")
    return value
