"""`sealmq broker config mosquitto SITE --out DIR`: everything for a Mosquitto on another host."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .errors import OK, UsageError

_EXAMPLES = """\
examples:
  sealmq broker config mosquitto factory --out /etc/sealmq/factory-broker --host broker.example
  sealmq broker config mosquitto factory --out /etc/sealmq/factory-broker    again: new certificates

It makes a CA, a certificate for the broker and one for the site's mediator, mosquitto.conf and the
access list. Only who shows the mediator's certificate gets in. With the same DIR again the CA stays
and both certificates are new (they are good for two years, the CA for ten). Nothing is revoked one
by one: when a key may be in wrong hands, take another DIR, which is a new CA.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq broker config mosquitto SITE"""
    parser = sub.add_parser(
        "broker",
        help="configure an external broker for a site",
        description="Configure an external broker for a site.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="config", required=True)
    make = verbs.add_parser(
        "config",
        help="write a broker's configuration and certificates",
        description="Write a broker's configuration and certificates.",
        epilog=_EXAMPLES,
    )
    make.add_argument("program", choices=("mosquitto",), help="which broker: mosquitto")
    make.add_argument("site", metavar="SITE", help="the site's folder")
    make.add_argument("--out", metavar="DIR", required=True, help="a new folder, outside of SITE")
    make.add_argument(
        "--host",
        metavar="NAME",
        help="the broker's name or address, as the gateway reaches it (default: that of [broker] "
        "url, or localhost)",
    )
    make.add_argument("--port", type=int, default=8883, help="default: %(default)s")
    make.add_argument(
        "--at",
        metavar="DIR",
        default="/etc/mosquitto/sealmq",
        help="where DIR/broker will lie on the broker's host (default: %(default)s)",
    )
    make.add_argument(
        "--data",
        metavar="DIR",
        default="/var/lib/mosquitto",
        help="where it keeps sessions and messages (default: %(default)s)",
    )
    make.add_argument("--json", action="store_true", help="say what was made as JSON")


def run(args: argparse.Namespace) -> int:
    """Write the files; print what is to be done with them."""
    from sealmq.broker.deploy import Plan, write
    from sealmq.site.config import load
    from sealmq.site.layout import Layout
    from sealmq.site.values import is_inside

    layout = Layout.open(args.site)
    config = load(layout.config)
    out = Path(args.out).absolute()
    if is_inside(out, layout.root):
        raise UsageError(
            f"{out} lies inside the site, whose copy would then reveal the mediator's key",
            hint="--out DIR, a folder outside of the site",
        )
    if not 0 < args.port < 65536:
        raise UsageError(f"port {args.port}", "it is 1 to 65535")
    host = args.host or _host(config.broker.url) or "localhost"
    at, data = Path(args.at).absolute(), Path(args.data).absolute()
    plan = Plan(out, config.site.name, host, args.port, at, data, config.limits)
    made = write(plan)
    for warning in made.warnings:
        print(f"sealmq: warning: {warning}", file=sys.stderr)
    shown = f"[{host}]" if ":" in host else host
    table = {
        "url": f"mqtts://{shown}:{args.port}",
        **{key: str(made.mediator / name) for key, name in _FILES},
        "autosave": 5,
    }
    if args.json:
        told = {"broker": str(made.broker), "mediator": str(made.mediator)}
        print(json.dumps(told | {"ca_reused": made.reused, "toml": table}))
        return OK
    _say(plan, made.reused, table)
    return OK


_FILES = (("ca", "ca.crt"), ("cert", "mediator.crt"), ("key", "mediator.key"))


def _host(url: str | None) -> str | None:
    return urlsplit(url).hostname if url else None


def _say(plan: Any, reused: bool, table: dict[str, Any]) -> None:
    at = plan.at
    print(f"{plan.out}: {'the same CA, new certificates' if reused else 'a new CA'}")
    print(f"""
On the broker's host ({plan.host}), as root:
  install -d -m 0700 -o mosquitto {at}
  install -m 0600 -o mosquitto {plan.out}/broker/* {at}/
  cp {at}/mosquitto.conf /etc/mosquitto/mosquitto.conf
  systemctl restart mosquitto

On the gateway, in sealmq.toml, in place of what stands under [broker]:
  [broker]""")
    for key, value in table.items():
        print(f"  {key} = {json.dumps(value)}")
    print(f"""
Then `sealmq up SITE`, and `sealmq doctor SITE`, which tries what must fail.
{plan.out}/ca/ca.key is needed only to renew; keep it elsewhere. Certificates are good for two
years. To keep out who may have a key, make a new CA: the same command with another --out.""")
