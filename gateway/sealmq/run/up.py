"""`sealmq up`: from a site folder to running parts.

The master key is read here, in the supervisor, and nowhere else; each process is handed the one key
that it needs. The broker's credentials are drawn anew at each start.
"""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import itertools
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sealmq import peerkeys
from sealmq.audit.chain import draw
from sealmq.broker.target import names_password
from sealmq.mdns import EXTRA
from sealmq.site import config as site_config
from sealmq.site import masterkey, reach
from sealmq.site.layout import (
    Layout,
    border_role,
    prepare,
    prepare_borders,
    prepare_bridge,
    prepare_mdns,
    prepare_metrics,
)
from sealmq.site.reserve import Reserve

from . import proc, users
from .child import Identity, Start
from .chosen import Chosen, choose
from .errors import RunError
from .lock import SiteLock
from .notify import in_journal
from .ready import read
from .roles import Part, Say, process_by_file
from .supervisor import Supervisor, harden

MODULES: Mapping[str, str] = {
    "kg": "sealmq.kg.process",
    "mediator": "sealmq.mediator.process",
    "broker": "sealmq.broker.process",
    "mosquitto": "sealmq.broker.private",
    "bridge": "sealmq.bridge.process",
    "border": "sealmq.border.process",
    "metrics": "sealmq.metrics.process",
    "mdns": "sealmq.mdns.process",
}
ROLES = ("kg", "broker", "mediator")
# Where what `up` writes goes to; `sealmq log` reads the first and names the second.
_FILE, _JOURNAL, _TERMINAL = "file", "journal", "terminal"

NOT_ENFORCED = "NOT ENFORCED: every denial is let through (enforce = false in sealmq.toml)"


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line said. broker: embedded, mosquitto or a URL; None: as sealmq.toml.
    last_good: what was in force counts where sealmq.toml is wrong."""

    site: str
    broker: str | None = None
    broker_password_file: Path | None = None
    broker_port: int = 0
    key_file: Path | None = None
    last_good: bool = False


@dataclass(frozen=True, slots=True)
class _Site:
    layout: Layout
    config: site_config.Config
    keys: masterkey.RoleKeys
    identities: Mapping[str, Identity]
    last_good: bool = False
    bridge: Identity | None = None
    border: Identity | None = None
    metrics: Identity | None = None
    mdns: Identity | None = None

    def runs_as(self, role: str) -> Identity | None:
        """As whom a role runs; None: as we do."""
        if role == users.BRIDGE:
            return self.bridge
        return self.border if role.startswith(users.BORDER) else self.identities.get(role)


def bring_up(
    options: Options,
    say: Say,
    tell: Say,
    modules: Mapping[str, str] = MODULES,
    serves: Callable[[], None] | None = None,
) -> int:
    """Run the site until a signal; 0 after a clean stop.

    `say` gets log lines, `tell` the summary. `serves`: called behind the summary, in the
    background. Raises what keeps the site from running.
    """
    layout = Layout.open(options.site, begins=True)
    config, fault = _config(layout, options.last_good)
    broker = choose(
        config.broker,
        options.broker,
        options.broker_password_file,
        options.broker_port,
        config.limits,
    )
    keys = masterkey.role_keys(layout, config, options.key_file)
    found = users.identities()
    users.check(found)
    layout.run.mkdir(exist_ok=True)
    # Before whose the folders are is changed: as another user, that would end one that is up.
    lock = SiteLock.take(layout.up_lock, options.site)
    try:
        prepare(layout)
        Reserve(layout.root).fill()
        users.give_back(layout, found)
        bridge = users.beside(users.BRIDGE, found) if config.peers else None
        if config.peers:
            prepare_bridge(layout, bridge)
        border = users.beside(users.BORDER, found) if config.borders else None
        if config.borders:
            prepare_borders(layout, config.borders, border)
        metrics = users.beside(users.METRICS, found) if config.metrics else None
        if config.metrics:
            prepare_metrics(layout, metrics)
        mdns = users.beside(users.MDNS, found) if config.announce else None
        if config.announce:
            _has_mdns()
            prepare_mdns(layout, mdns)
        harden()
        os.umask(0o077)
        apart = map(users.as_beside, (bridge, border, metrics, mdns))
        site = _Site(layout, config, keys, found, options.last_good, *apart)
        if fault is not None:
            say(f"WARNING: {fault}")
        if options.broker is not None and names_password(options.broker):
            say(
                "warning: a password on the command line can be read by everybody on this host; "
                "--broker-password-file takes it from a file"
            )
        if not config.policy.enforce:
            say(f"WARNING: the policy is {NOT_ENFORCED}")
        astray = reach.warning(config.mediator)
        if astray is not None:
            say(f"warning: {astray}")
        broker.take(options.broker_port)
        parts = assemble(site, broker, lock, say, modules)
        output = _FILE if serves else _JOURNAL if in_journal() else _TERMINAL
        supervisor = Supervisor(layout, parts, say, shared_user=not found, output=output)

        def ready() -> None:
            for line in summary(site, broker):
                tell(line)
            if serves is None:
                tell("Ctrl-C, or SIGTERM, stops it.")
            else:
                tell(f"  log                 {layout.up_log}")
                tell(f"`sealmq down {options.site}` stops it.")
            known = bool(config.clients)
            then = "doctor {}" if known else "client add {} NAME --label LABEL"
            tell(f"next: sealmq {then.format(shlex.quote(options.site))}")
            if serves is not None:
                serves()

        return asyncio.run(supervisor.run(ready))
    finally:
        broker.close()
        lock.release()


# And, where that is not what sealmq.toml says, why.
def _config(layout: Layout, last_good: bool) -> tuple[site_config.Config, str | None]:
    try:
        return site_config.load(layout.config), None
    except (site_config.ConfigError, OSError) as error:
        if not last_good:
            raise
        # Only now: the database's library is large, and this process lives as long as the site.
        from sealmq.kg import last

        found = last.last(layout)
        if found is None:
            raise
        return found, last.words(error)


def assemble(
    site: _Site, broker: Chosen, lock: SiteLock, say: Say, modules: Mapping[str, str]
) -> Sequence[Part]:
    """The parts in the order in which they start."""
    layout = site.layout

    def start(role: str, secrets: Mapping[str, object], module: str = "", **more: Any) -> Start:
        return Start(
            role,
            modules[module or role],
            layout.root,
            secrets,
            keep=[lock.fd, *(broker.keep if role == "mediator" else [])],
            identity=site.runs_as(role),
            drawn=more.pop("drawn", partial(_drawn, site.keys.audit, role)),
            **more,
        )

    # Whoever starts the site hears of a mistake in sealmq.toml. It keeps no process away later.
    last_good = itertools.chain([site.last_good], itertools.repeat(True))

    def for_kg() -> Mapping[str, Any]:
        return {**_drawn(site.keys.audit, "kg"), "last_good": next(last_good)}

    kg = process_by_file(start("kg", {"key": site.keys.kg.hex()}, drawn=for_kg), layout, say)
    serving = broker.part(start, layout, say)
    cache_key = site.keys.mediator_cache.hex()
    mediator = start("mediator", {"cache_key": cache_key, "broker": broker.handed})
    parts = [kg, serving, process_by_file(mediator, layout, say, _no_port)]
    if site.config.peers:
        here, keys = site.config.site, site.keys
        der = peerkeys.certificate(keys.line, keys.kg, here.id, here.name)
        shown = {"line": keys.line.hex(), "certificate": der.hex(), "log": _log(site.config)}
        parts.append(process_by_file(start("bridge", shown), layout, say))
    for name in site.config.borders:
        crosses = {"border": name, "log": _log(site.config)}
        border = start(border_role(name), crosses, "border")
        parts.append(process_by_file(border, layout, say))
    if site.config.metrics is not None:
        # It has no secret, and outlives us: so it says that we were killed.
        at = {"host": site.config.metrics.host, "port": site.config.metrics.port}
        alone = Start(
            "metrics", modules["metrics"], layout.root, at, identity=site.metrics, guard=False
        )
        parts.append(process_by_file(alone, layout, say))
    if site.config.announce:
        here, mediator_ = site.config.site, site.config.mediator
        told = {
            "name": here.name,
            "site": here.id.hex(),
            "host": mediator_.advertise_host,
            "port": mediator_.advertise_port,
            "listen": mediator_.host,
        }
        by = Start("mdns", modules["mdns"], layout.root, told, identity=site.mdns)
        parts.append(process_by_file(by, layout, say))
    return parts


def _has_mdns() -> None:
    if importlib.util.find_spec("zeroconf") is None:
        raise RunError(
            f"[mdns] needs the extra {EXTRA}, which is not installed here",
            f"make install EXTRAS={EXTRA}, or take [mdns] out of sealmq.toml",
        )


def _log(config: site_config.Config) -> Mapping[str, Any]:
    """What an audit log goes by, for those who read no sealmq.toml."""
    keep = config.audit
    report = None if keep.report is None else str(keep.report)
    return {
        "site": config.site.id.hex(),
        "keep_ms": keep.keep_ms,
        "report": report,
        "totals": config.metrics is not None,
    }


# The broker has no audit log; those of all borders are called so.
def _drawn(audit_key: bytes, role: str) -> Mapping[str, Any]:
    role = users.BORDER if role.startswith(users.BORDER) else role
    return {} if role == "broker" else {"audit": draw(audit_key, role)}


# What the mediator says when it cannot have its port.
_NO_PORT = re.compile(r"cannot listen on (\S*):(\d+): (.*)")


def _no_port(lines: Sequence[str]) -> str | None:
    found = next((m for line in lines if (m := _NO_PORT.search(line))), None)
    if found is None:
        return None
    _, port, reason = found.groups()
    change = "[mediator] listen in sealmq.toml"
    if reason != os.strerror(errno.EADDRINUSE):
        return f"{change} names an address that this process cannot have"
    who = proc.listener(int(port))
    if who is None:
        return f"`sudo ss -ltnp sport = :{port}` says who has it; stop that, or change {change}"
    return f"{who} listens on port {port}: stop it, or change {change}"


def summary(site: _Site, broker: Chosen) -> list[str]:
    """What a person wants to know once everything serves."""
    layout, config = site.layout, site.config
    at = {
        role: told.address
        for role in (*ROLES, "metrics")
        if (told := read(layout, role)) is not None
    }
    if site.identities:
        found = [
            *site.identities.values(),
            *filter(None, (site.bridge, site.border, site.metrics, site.mdns)),
        ]
        who = "separate: " + ", ".join(one.name for one in found)
    else:
        who = "shared user: the processes are not protected from one another"
        if os.geteuid() != 0:
            who += " (as root, after `sealmq system-users`, they are)"
        else:
            who += " (`sealmq system-users` separates them)"
    clients = reach.written(config.mediator.advertise_host, config.mediator.advertise_port)
    listens = at.get("mediator", "?")
    beside = "" if listens == clients else f" (it listens on {listens})"
    lines = [
        f"site {config.site.name} is up",
        f"  clients connect to  {clients}{beside}",
        f"  broker              {at.get('broker', '?')} ({broker.words()})",
        f"  users               {who}",
        f"  audit log           {layout.root / 'audit'}",
    ]
    if "metrics" in at:
        lines.append(f"  metrics             http://{at['metrics']}/metrics and /healthz")
    if config.announce:
        lines.append("  mDNS                announces where clients connect to (a hint, no secret)")
    if not config.policy.enforce:
        lines.append(
            "  POLICY              NOT ENFORCED: every denial is let through (enforce = false)"
        )
    return lines
