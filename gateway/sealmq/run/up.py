"""`sealmq up`: from a site folder to running parts.

The master key is read here, in the supervisor, and nowhere else; each process is handed the one key
that it needs. The broker's credentials are drawn anew at each start.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sealmq.broker.credentials import Credentials
from sealmq.broker.errors import BadAddress
from sealmq.broker.external import Target, names_password, parse
from sealmq.broker.process import HOST, LISTEN_FD
from sealmq.site import config as site_config
from sealmq.site import masterkey
from sealmq.site.layout import Layout, prepare

from . import users
from .child import Identity, Start
from .lock import SiteLock
from .ready import read
from .roles import (
    ExternalBroker,
    Part,
    Port,
    Process,
    Say,
    embedded_broker,
    process_by_file,
)
from .supervisor import Supervisor, harden

MODULES: Mapping[str, str] = {
    "kg": "sealmq.kg.process",
    "mediator": "sealmq.mediator.process",
    "broker": "sealmq.broker.process",
}

NOT_ENFORCED = "NOT ENFORCED: every denial is let through (enforce = false in sealmq.toml)"


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line said."""

    site: str
    broker: str | None = None
    broker_password_file: Path | None = None
    broker_port: int = 0
    key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class _Site:
    layout: Layout
    config: site_config.Config
    keys: masterkey.RoleKeys
    identities: Mapping[str, Identity]


def bring_up(options: Options, say: Say, tell: Say, modules: Mapping[str, str] = MODULES) -> int:
    """Run the site until a signal; 0 after a clean stop.

    `say` gets log lines, `tell` the summary. Raises what keeps the site from running.
    """
    layout = Layout.open(options.site)
    config = site_config.load(layout.config)
    target = external(options, config)
    keys = masterkey.role_keys(layout, config, options.key_file)
    found = users.identities()
    users.check(found)
    prepare(layout)
    lock = SiteLock.take(layout.run / "up.lock", options.site)
    port = None
    try:
        users.give_back(layout, found)
        harden()
        os.umask(0o077)
        site = _Site(layout, config, keys, found)
        if options.broker is not None and names_password(options.broker):
            say(
                "warning: a password on the command line can be read by everybody on this host; "
                "--broker-password-file takes it from a file"
            )
        if not config.policy.enforce:
            say(f"WARNING: the policy is {NOT_ENFORCED}")
        if target is None:
            port = Port(HOST, options.broker_port)
        parts = assemble(site, target, port, lock, say, modules)
        supervisor = Supervisor(layout, parts, say, shared_user=not found)

        def ready() -> None:
            for line in summary(site, target):
                tell(line)

        return asyncio.run(supervisor.run(ready))
    finally:
        if port is not None:
            port.close()
        lock.release()


def external(options: Options, config: site_config.Config) -> Target | None:
    """The external broker to use, or None for the embedded one."""
    told = config.broker
    url = options.broker or told.url
    password_file = options.broker_password_file
    if url is None:
        if password_file is not None:
            raise BadAddress(
                "a password file for an external broker, and no external broker",
                "give --broker URL as well",
            )
        return None
    if options.broker is None:
        return parse(url, told.user, password_file or told.password_file)
    return parse(url, None, password_file)


def assemble(
    site: _Site,
    target: Target | None,
    port: Port | None,
    lock: SiteLock,
    say: Say,
    modules: Mapping[str, str],
) -> Sequence[Part]:
    """The parts in the order in which they start."""

    def start(role: str, secrets: Mapping[str, object], **fds: int) -> Start:
        return Start(
            role,
            modules[role],
            site.layout.root,
            secrets,
            fds=fds,
            keep=[lock.fd],
            identity=site.identities.get(role),
        )

    kg = process_by_file(start("kg", {"key": site.keys.kg.hex()}), site.layout, say)
    broker: Process | ExternalBroker
    if port is not None:
        own = Credentials.draw()
        target = Target(port.host, port.number, own.user, own.password)
        handed = {"user": own.user, "password": own.password, "port": port.number}
        broker = embedded_broker(
            start("broker", handed, **{LISTEN_FD: port.sock.fileno()}),
            target,
            port,
            site.layout,
            say,
        )
    elif target is not None:
        broker = ExternalBroker(target, site.layout, say)
    else:
        raise ValueError("neither a port nor an external broker")
    handed_mediator = {
        "cache_key": site.keys.mediator_cache.hex(),
        # The embedded broker has no shared subscriptions; an external one may.
        "broker": {**target.handed_over(), "shared": port is None},
    }
    mediator = process_by_file(start("mediator", handed_mediator), site.layout, say)
    return kg, broker, mediator


def summary(site: _Site, target: Target | None) -> list[str]:
    """What a person wants to know once everything serves."""
    layout, config = site.layout, site.config
    at = {role: told.address for role in MODULES if (told := read(layout, role)) is not None}
    broker = "embedded, for the mediator only" if target is None else "external"
    if site.identities:
        who = "separate: " + ", ".join(i.name for i in site.identities.values())
    else:
        who = "shared user: the processes are not protected from one another"
        if os.geteuid() != 0:
            who += " (as root, after `sealmq system-users`, they are)"
        else:
            who += " (`sealmq system-users` separates them)"
    lines = [
        f"site {config.site.name} is up",
        f"  clients connect to  {at.get('mediator', '?')}",
        f"  broker              {at.get('broker', '?')} ({broker})",
        f"  users               {who}",
        f"  audit log           {layout.root / 'audit'}",
    ]
    if not config.policy.enforce:
        lines.append(
            "  POLICY              NOT ENFORCED: every denial is let through (enforce = false)"
        )
    lines.append("Ctrl-C, or SIGTERM, stops it.")
    return lines
