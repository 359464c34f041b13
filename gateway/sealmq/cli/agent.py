"""`sealmq agent`: a local MQTT broker in front of a site, for clients that cannot be changed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import OK, OperatorError

if TYPE_CHECKING:
    from sealmq.agent.config import Config

_EXAMPLES = """\
examples:
  sealmq agent factory --client monitor --purpose service --listen run/mqtt.sock
  sealmq agent --enrolment ha.sealmq.json --listen 127.0.0.1:1884 --password-file ha.password
  sealmq agent --config agent.toml          several users, each with an enrolment of its own
  mosquitto_sub --unix run/mqtt.sock -t 'machine/#' -v

Local clients speak MQTT 3.1.1 or 5 in plain; what leaves this process is sealed. A Unix socket is
its owner's alone. An address on the loopback is reached by every user of this machine, so it takes
a password (a file of mode 0600), or --anonymous. Other machines reach it only as --config says,
with TLS and passwords. ws://127.0.0.1:9001 listens for WebSockets.

PUBACK means that the site has accepted the message. A refused one gets a reason code with the rule
in MQTT 5; in 3.1.1 the connection ends. While the site is away messages of QoS 1 and 2 wait on disk
(.spool beside the configuration or the enrolment, or --spool), unacknowledged and bounded.

SIGTERM and Ctrl-C end it.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq agent"""
    from .acting import add_said

    parser = sub.add_parser(
        "agent",
        help="a local MQTT broker for ordinary clients: plain here, sealed from here on",
        description="A local MQTT listener in front of a site, for clients that cannot be changed.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "site", metavar="SITE", nargs="?", help="the site's folder, on the gateway's machine"
    )
    parser.add_argument("--client", metavar="NAME", help="act as this client of the site")
    parser.add_argument(
        "--enrolment", metavar="FILE", type=Path, help="elsewhere: the client's enrolment"
    )
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="several users: gateway/AGENT.md has its keys"
    )
    parser.add_argument(
        "--listen",
        metavar="WHERE",
        action="append",
        help="a path for a Unix socket, HOST:PORT, or ws://HOST:PORT; may be repeated",
    )
    parser.add_argument(
        "--password-file", metavar="FILE", type=Path, help="local clients' password, mode 0600"
    )
    parser.add_argument(
        "--anonymous", action="store_true", help="let every user of this machine in"
    )
    parser.add_argument(
        "--origin",
        metavar="URL",
        action="append",
        default=[],
        help="a page of this origin may open WebSockets; may be repeated",
    )
    parser.add_argument("--spool", metavar="DIR", type=Path, help="where messages wait")
    add_said(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal."""
    from sealmq.agent.config import BadConfig
    from sealmq.agent.run import serve
    from sealmq.client import ClientError
    from sealmq_spec.errors import SealError

    from .acting import told

    try:
        config = _config(args)
        serve(config, lambda line: print(line, file=sys.stderr, flush=True))
    except BadConfig as error:
        raise OperatorError(str(error), hint=error.hint) from None
    except (ClientError, SealError) as error:
        raise told(error) from None
    except OSError as error:
        raise OperatorError(f"{error.filename or 'agent'}: {error.strerror or error}") from None
    return OK


def _config(args: argparse.Namespace) -> Config:
    from sealmq.agent import config as c

    from .acting import said, wrong

    given = {name: value for name, (_, _, value) in said(args).items()}
    single = (args.site, args.client, args.enrolment, args.listen, args.password_file, args.spool)
    if args.config is not None:
        if any(single) or args.anonymous or args.origin or given:
            raise wrong(args, "--config and other options", "the file says all of it")
        return c.read(args.config)
    if (args.enrolment is None) == (not (args.site and args.client)):
        raise wrong(args, "no client", "SITE and --client NAME, --enrolment FILE, or --config FILE")
    if args.enrolment is not None and (args.site or args.client):
        raise wrong(args, "SITE and --enrolment", "one of the two")
    c.check_say(given)
    password = None if args.password_file is None else c.read_password(args.password_file)
    name = args.client or args.enrolment.name.partition(".")[0]
    user = c.User(name, args.enrolment, args.site or "", args.client or "", None, password, given)
    spool = args.spool or (
        args.enrolment.with_name(f"{args.enrolment.name}.spool")
        if args.enrolment is not None
        else Path(f"{args.client}.spool")
    )
    doors = [c.door(text) for text in args.listen or ()]
    config = c.Config(doors, {name: user}, spool, args.anonymous, args.origin)
    return c.checked(config)
