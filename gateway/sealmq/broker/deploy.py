"""What an external Mosquitto needs to take one site's mediator and nobody else, as files.

    DIR/ca/        the CA; its key is needed again only to renew what is below
    DIR/broker/    for the broker's host: mosquitto.conf, acl, CA, the broker's certificate and key
    DIR/mediator/  for the gateway: CA, the mediator's certificate and key

Written again into the same DIR, the CA stays and the certificates are new.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from sealmq.site.layout import write_atomically
from sealmq.site.model import Limits

from . import issuing, mosquitto
from .errors import BadAddress

MEDIATOR = "mediator"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Plan:
    """host: as mediators name the broker. at, data: where its files and what it keeps will lie."""

    out: Path
    site: str
    host: str = "localhost"
    port: int = 8883
    at: Path = Path("/etc/mosquitto/sealmq")
    data: Path = Path("/var/lib/mosquitto")
    limits: Limits = field(default_factory=Limits)


@dataclass(slots=True)
class Made:
    """What has been written. reused: the CA was there already."""

    broker: Path
    mediator: Path
    reused: bool
    warnings: list[str] = field(default_factory=list)


def write(plan: Plan) -> Made:
    """Write all of it; BadAddress when DIR holds something else, or a CA that has ended."""
    names = list(dict.fromkeys((plan.host, *(LOOPBACK if plan.host in LOOPBACK else ()))))
    issuing.check_hosts(names)
    ca, reused = _ca(plan)
    server, client = issuing.server(ca, names), issuing.client(ca, MEDIATOR)
    made = Made(plan.out / "broker", plan.out / "mediator", reused)
    for folder in (made.broker, made.mediator):
        folder.mkdir(mode=0o700, exist_ok=True)
    for folder, name, pair in (
        (made.broker, "server", server),
        (made.mediator, MEDIATOR, client),
    ):
        write_atomically(folder / "ca.crt", ca.cert_pem, 0o644)
        write_atomically(folder / f"{name}.crt", pair.cert_pem, 0o644)
        write_atomically(folder / f"{name}.key", pair.key_pem, 0o600)
    write_atomically(made.broker / "acl", mosquitto.acl(MEDIATOR).encode(), 0o600)
    write_atomically(made.broker / "mosquitto.conf", config(plan).encode(), 0o644)
    if (soon := issuing.ends_soon(ca)) is not None:
        made.warnings.append(soon)
    return made


def _ca(plan: Plan) -> tuple[issuing.Pair, bool]:
    folder = plan.out / "ca"
    cert, key = folder / "ca.crt", folder / "ca.key"
    if cert.exists() or key.exists():
        if key.stat().st_mode & 0o077:
            raise BadAddress(f"{key} can be read by others", f"chmod 600 {key}")
        return issuing.load_ca(cert.read_bytes(), key.read_bytes(), str(folder)), True
    if plan.out.exists() and (not plan.out.is_dir() or any(plan.out.iterdir())):
        raise BadAddress(
            f"{plan.out} is there and holds no CA of ours; nothing was changed",
            "name a folder that is not there yet, or one that this command has made",
        )
    plan.out.mkdir(mode=0o700, parents=True, exist_ok=True)
    plan.out.chmod(0o700)
    folder.mkdir(mode=0o700)
    made = issuing.new_ca(f"SealMQ {plan.site} {os.urandom(4).hex()}")
    write_atomically(key, made.key_pem, 0o600)
    write_atomically(cert, made.cert_pem, 0o644)
    return made, False


def config(plan: Plan) -> str:
    """The whole of mosquitto.conf."""
    where = " localhost" if plan.host in LOOPBACK else ""
    lines = [
        f"# The broker of the SealMQ site {plan.site}: for the site's mediator and nobody else.",
        "# This is its whole configuration: no other file, and no other listener, beside it.",
        f"listener {plan.port}{where}",
        mosquitto.NO_DELAY,
        "protocol mqtt",
        "max_connections -1",
        "",
        "# TLS 1.2 and 1.3, with a certificate on both sides.",
        f"cafile {plan.at}/ca.crt",
        f"certfile {plan.at}/server.crt",
        f"keyfile {plan.at}/server.key",
        "tls_version tlsv1.2",
        "require_certificate true",
        "use_identity_as_username true",
        "",
        *mosquitto.served(None, plan.at / "acl"),
        "",
        *mosquitto.kept(plan.data, plan.limits),
        "",
        "# Who was turned away stands in the log.",
        *mosquitto.LOGGED,
        "connection_messages true",
    ]
    return "\n".join(lines) + "\n"
