"""`sealmq status`: whether each role is ready, found out by a connection to it, not from a file.

A readiness file counts only if its process is the one that the supervisor started: same pid, same
start time. The broker has to answer an MQTT CONNECT, and one of ours has to refuse it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sealmq.broker.errors import BrokerError
from sealmq.broker.external import connack
from sealmq.broker.target import Target
from sealmq.plain import plain
from sealmq.site import reach
from sealmq.site.config import Config
from sealmq.site.layout import Layout
from sealmq.site.values import ANYWHERE
from sealmq.unix import short_path

from . import proc, ready
from .logfile import stamp

# The order in which `up` starts them.
ROLES = ("kg", "broker", "mediator")
PROBE_S = 3.0
# Labels that are named when there are many.
_NAMES = 5
# Characters of what a role says in words.
_LONGEST = 300
_PROGRAMS = {"embedded": "embedded, amqtt {}", "mosquitto": "private Mosquitto {}"}


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One role. `note` says why it is not ready, or what is remarkable.

    kind: of a broker, embedded, mosquitto or external; version: its program's, where we know it.
    closed: of a mediator, why it opens nothing.
    """

    role: str
    pid: int | None = None
    address: str | None = None
    ready: bool = False
    user: str | None = None
    note: str | None = None
    kind: str | None = None
    version: str | None = None
    closed: str | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """A site. `enforce` and `clients` are None when sealmq.toml is not readable or wrong; `note`
    then says why, or that not all of it is in force. clients: the address that enrolment files
    carry. astray: why no client may get here by it.
    """

    site: str
    processes: tuple[ProcessStatus, ...]
    shared_user: bool
    enforce: bool | None
    note: str | None = None
    clients: str | None = None
    astray: str | None = None

    @property
    def ready(self) -> bool:
        """Whether every role is."""
        return all(process.ready for process in self.processes)

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self) | {"processes": [asdict(p) for p in self.processes]}


def look(layout: Layout, config: Config | None, note: str | None = None) -> Status:
    """Ask every role. config: None where sealmq.toml is wrong, which `note` tells."""
    up = ready.read_json(layout.run / "up.json") or {}
    found = asyncio.run(_all(layout, up))
    shared = up.get("shared_user") is not False
    if config is None:
        return Status(layout.root.name, tuple(found), shared, None, note)
    mediator = config.mediator
    return Status(
        config.site.name,
        tuple(found),
        shared,
        config.policy.enforce,
        note or ready.other_order(layout, config.policy.order) or None,
        reach.written(mediator.advertise_host, mediator.advertise_port),
        reach.warning(mediator),
    )


async def _all(layout: Layout, up: Mapping[str, Any]) -> list[ProcessStatus]:
    """up: what the supervisor has written down."""
    told, names = up.get("processes"), up.get("roles")
    ours: Mapping[str, Any] = told if isinstance(told, dict) else {}
    # A part that has not begun yet, or that has ended and will be started again, is shown, too.
    known = {*ours, *map(str, names if isinstance(names, list) else [])}
    beside = ("bridge", "border-", "metrics", "mdns")
    roles = [*ROLES, *sorted(role for role in known if role.startswith(beside))]
    supervisor = _is(up)
    return list(
        await asyncio.gather(*(_one(layout, role, ours.get(role), supervisor) for role in roles))
    )


def _is(told: object) -> bool:
    """Whether the process of a {"pid", "start"} lives."""
    if not isinstance(told, dict):
        return False
    pid, start = told.get("pid"), told.get("start")
    return type(pid) is int and start is not None and proc.start_of(pid) == start


async def _one(layout: Layout, role: str, ours: object, supervisor: bool) -> ProcessStatus:
    word = ready.read(layout, role)
    external = role == "broker" and word is not None and word.pid is None
    if external and word is not None:
        if not supervisor:
            return ProcessStatus(role, note="nobody watches the broker: `sealmq up` has ended")
        if word.tls:
            # It lets nobody in without a certificate; the supervisor asks it with the mediator's.
            note = await _connect(asyncio.open_connection(*_split(word.address)))
        else:
            note = await _broker(Target(*_split(word.address)), ours=False)
        if note is None and not word.ready:
            note = "it does not let the mediator in"
        ok = note is None
        return ProcessStatus(
            role, None, word.address, ok, None, note or _external(word), "external"
        )
    pid = ours["pid"] if isinstance(ours, dict) and _is(ours) else None
    if pid is None:
        stale = (word is not None and "; its readiness file is stale") or ""
        return ProcessStatus(role, note=f"not running{stale}")
    user = proc.user_of(pid)
    if word is None or not word.ready or word.pid != pid:
        return ProcessStatus(role, pid, None, False, user, "running, not ready yet")
    if role == "broker":
        shown = _PROGRAMS.get(word.kind or "", "{}").format(word.version or "")
        if word.kind != "mosquitto":
            note = await _broker(Target(*_split(word.address)), ours=True)
        elif _shut(layout.broker_socket):
            note, shown = None, f"{shown}, as it says: only root and the mediator may ask it"
        else:
            note = await _broker(Target.at_socket(layout.broker_socket), ours=True)
        shown = note or shown
        ok = note is None
        return ProcessStatus(role, pid, word.address, ok, user, shown, word.kind, word.version)
    if role.startswith(("bridge", "border-")):
        told = ready.read_json(layout.run_of(role) / "lines.json") or {}
        # Of the one before, which was killed, it says nothing of this one.
        lines = told.get("lines") if told.get("pid") == pid else None
        rows = lines if isinstance(lines, dict) else {}
        rows = {name: row for name, row in rows.items() if isinstance(row, dict)}
        found = {name: row.get("line") for name, row in rows.items()}
        said = "; ".join(f"{_shown(name)}: {_line(row)}" for name, row in rows.items())
        # A bridge serves as long as it tries; a border is its one line.
        up = role == "bridge" or list(found.values()) == ["up"]
        return ProcessStatus(role, pid, None, up, user, said or (None if up else "beginning"))
    # The one asks us, so we do not ask it; the other has no answer.
    if role in ("metrics", "mdns"):
        return ProcessStatus(role, pid, word.address, True, user)
    if role == "kg":
        note = await _unix(layout.kg_socket)
    else:
        note = await _tcp(word.address)
        if note is None:
            told = ready.read_json(layout.ready("mediator")) or {}
            away = told.get("away")
            notes = [
                f"nobody can connect: {_shown(away)}" if away else None,
                _workers(told.get("pids")),
                _aside(told.get("aside")),
                _stuck(told.get("stuck")),
                _journal(told.get("journal")),
                _handover(told.get("handover")),
                _attributes(told.get("attributes")),
            ]
            closed = told.get("closed")
            closed = closed if isinstance(closed, str) and closed else None
            note = "; ".join(n for n in notes if n) or None
            return ProcessStatus(role, pid, word.address, not away, user, note, closed=closed)
    return ProcessStatus(role, pid, word.address, note is None, user, note)


def _journal(told: object) -> str | None:
    """What the mediator says of its journal; None where its broker is worth none."""
    if not isinstance(told, dict):
        return None
    failing, size = told.get("failing"), told.get("bytes", 0)
    if isinstance(failing, str) and failing:
        return f"QoS 1 and 2 are refused: {plain(failing, _LONGEST)}"
    if type(size) is not int or size < 0:
        return "journal: the mediator says nothing that makes sense"
    return f"journal: {size // 1024} KiB that the broker may not have saved"


def _workers(told: object) -> str | None:
    """How many processes its clients are spread over."""
    return f"{len(told)} workers" if isinstance(told, list) and told else None


def _aside(told: object) -> str | None:
    """Messages that the broker did not take, and whose the newest is."""
    if not isinstance(told, dict):
        return None
    newest = told.get("newest")
    of = ""
    if isinstance(newest, dict):
        of = f", the newest of {_shown(newest.get('client'))} on {_shown(newest.get('topic'))}"
    return (
        f"messages set aside, which the broker did not take: {_number(told.get('count'))} in "
        f"{_shown(told.get('folder'))}{of}; delete what is not needed"
    )


def _stuck(told: object) -> str | None:
    """Sessions of clients that are gone, which the broker still has."""
    if not isinstance(told, dict):
        return None
    some = told.get("some")
    rows = (
        [r for r in some if isinstance(r, list) and len(r) == 2] if isinstance(some, list) else []
    )
    names = ", ".join(f"{_shown(session)} of {_shown(client)}" for client, session in rows)
    many = _number(told.get("count"))
    return f"old sessions that are not ended at the broker yet: {many}, {names}"


def _number(told: object) -> int:
    return told if type(told) is int else 0


def _shown(text: object) -> str:
    return plain(str(text), _LONGEST)


def _line(row: Mapping[str, Any]) -> str:
    """A line's state, and of one that is down since when."""
    line, since = _shown(row.get("line")), ready.since_s(row)
    if since is None or ready.is_up(line):
        return line
    return f"{line} (not up since {stamp(since)[:19]}Z)"


def _handover(told: object) -> str | None:
    """Which labels' old epochs are still taken, and who waits for a new one; None: nothing runs."""
    if not isinstance(told, dict):
        return None
    labels = told.get("labels")
    names = [plain(name, _LONGEST) for name in labels] if isinstance(labels, dict) else []
    parts = []
    if names:
        many = max(len(names), _number(told.get("count")))
        more = f" and {many - _NAMES} more" if many > _NAMES else ""
        parts.append("epoch hand-over of " + ", ".join(names[:_NAMES]) + more)
    held = told.get("held")
    if type(held) is int and held > 0:
        parts.append(f"connections that wait for a new epoch: {held}")
    return "; ".join(parts) or None


def _attributes(told: object) -> str | None:
    """Whose sources say nothing, and why."""
    if not isinstance(told, dict) or not told:
        return None
    rows = [f"attribute {_shown(name)}: {_shown(reason)}" for name, reason in told.items()]
    more = f"; and {len(rows) - _NAMES} more attributes" if len(rows) > _NAMES else ""
    return "; ".join(rows[:_NAMES]) + more


def _external(word: ready.Ready) -> str:
    return "external, mutual TLS" if word.tls else "external"


# Its folder is closed to other users, and to us: root and the mediator may.
def _shut(path: Path) -> bool:
    return not os.access(path.parent, os.X_OK)


async def _broker(target: Target, *, ours: bool) -> str | None:
    try:
        code = await connack(target, PROBE_S)
    except BrokerError as error:
        return str(error)
    if ours and code == 0:
        return "it lets in clients without credentials"
    return None


async def _tcp(address: str) -> str | None:
    host, port = _split(address)
    try:
        # No role of ours says a name; to look one up may take long.
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "it says no address that makes sense"
    host = ANYWHERE.get(host, host)
    return await _connect(asyncio.open_connection(host, port), answers=True)


async def _unix(path: Path) -> str | None:
    try:
        with short_path(path) as short:
            return await _connect(asyncio.open_unix_connection(short), answers=True)
    except OSError as error:
        return f"there is no socket: {error.strerror}"


async def _connect(connecting: Any, *, answers: bool = False) -> str | None:
    """answers: one that is told that nothing comes has to end the connection. The kernel takes one
    for a process that was stopped, or hangs, as well.
    """
    try:
        async with asyncio.timeout(PROBE_S):
            reader, writer = await connecting
    except TimeoutError:
        return f"it takes no connection within {PROBE_S:g} s"
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        return f"it takes no connection: {reason}"
    note = None
    try:
        if answers:
            async with asyncio.timeout(PROBE_S):
                writer.write_eof()
                while await reader.read(4096):
                    pass
    except TimeoutError:
        note = f"it does not answer within {PROBE_S:g} s"
    except OSError:
        pass  # it has cut the connection off: it lives
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return note


def _split(address: str) -> tuple[str, int]:
    """host:port or [host]:port; port 0, which takes no connection, when it is neither."""
    host, _, port = address.rpartition(":")
    number = int(port) if port.isascii() and port.isdecimal() and len(port) <= 5 else 0
    return host.strip("[]"), number if number < 65536 else 0
