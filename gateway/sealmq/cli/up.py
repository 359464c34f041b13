"""`sealmq up SITE`: key generator, broker and mediator, until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import OK, UsageError, report

if TYPE_CHECKING:
    from sealmq.run.up import Options

Say = Callable[[str], None]

_EXAMPLES = """\
examples:
  sealmq up factory
  sealmq up factory --detach                    in the background; sealmq down factory ends it
  sealmq up factory --wait                      the same, and well if it is up already
  sealmq up factory --detach --json | jq -r .clients    where clients connect to
  sealmq up factory --broker mosquitto          a Mosquitto of the site's own, where it is installed
  sealmq up factory --broker mqtt://mediator@localhost:1884 --broker-password-file ~/broker.pw
  sealmq up factory --key-file /media/stick/factory.key

Without --broker it is what [broker] in sealmq.toml says. The embedded broker runs on the loopback,
a Mosquitto of the site's own on a Unix socket; both take the mediator only. The latter keeps
sessions and retained messages over restarts. An external broker is used as it is; let it accept
mediators only.

As root, with the users that `sealmq system-users` makes, each process runs as its own user.

--detach comes back once the site serves, with exit code 0, or with the reason why it does not.
What it writes stands in SITE/log/up.log (`sealmq log SITE`). --wait does the same, and waits for a
site that somebody else has just started.

--json prints one object once the site serves, that of `sealmq status --json`.

SIGTERM, Ctrl-C and `sealmq down SITE` stop everything; SIGHUP and `sealmq reload SITE` read
sealmq.toml again.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "up",
        help="run a site: key generator, broker and mediator",
        description="Run a site: key generator, broker and mediator, each in a process of its own.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("site", metavar="SITE", help="the site's folder")
    parser.add_argument(
        "--detach", "-d", action="store_true", help="in the background; come back once it serves"
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="as --detach; a site that is up or starting already is waited for",
    )
    parser.add_argument(
        "--broker",
        metavar="BROKER",
        help="embedded, mosquitto, or an external one's URL: mqtt://[USER[:PASSWORD]@]HOST[:PORT]",
    )
    parser.add_argument(
        "--broker-password-file",
        metavar="FILE",
        type=Path,
        help="a file (mode 0600) with the external broker's password",
    )
    parser.add_argument(
        "--broker-port",
        metavar="PORT",
        type=_port,
        default=0,
        help="the port of the embedded broker on the loopback (default: a free one)",
    )
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        type=Path,
        help="the file with the site's key (default: as sealmq.toml says, or the systemd "
        "credential sealmq-key)",
    )
    parser.add_argument(
        "--last-good",
        action="store_true",
        help="where sealmq.toml has a mistake, warn and go by what was taken over last, as a site "
        "that is up does; for starts that nobody watches (systemd's)",
    )
    parser.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Run the site."""
    if args.broker and "://" in args.broker and args.broker_port:
        raise UsageError(
            "--broker URL and --broker-port",
            "the port is that of the embedded broker: give one of the two",
        )
    from sealmq.run.up import bring_up

    if args.detach or args.wait:
        return _background(args)
    return bring_up(_options(args), _say, _teller(args))


def _background(args: argparse.Namespace) -> int:
    from sealmq.run import lock
    from sealmq.run.background import SOMEBODY_ELSE, detach, until_serving
    from sealmq.run.errors import AlreadyUp
    from sealmq.run.up import MODULES, bring_up
    from sealmq.site.layout import Layout

    layout = Layout.open(args.site, begins=True)
    told = _teller(args)

    def work(say: Say, tell: Say, serves: Callable[[], None]) -> int:
        try:
            return bring_up(_options(args), say, tell, MODULES, serves)
        except AlreadyUp as error:
            return SOMEBODY_ELSE if args.wait else report(error, say)
        except BaseException as error:
            return report(error, say)

    if not args.wait or lock.supervisor(layout.up_lock) is None:
        code = detach(layout, work, _say, told)
        if code != SOMEBODY_ELSE:
            return code
    until_serving(layout, args.site)
    told(f"{args.site} is up")
    return OK


def _options(args: argparse.Namespace) -> Options:
    from sealmq.run.up import Options

    return Options(
        args.site,
        args.broker,
        args.broker_password_file,
        args.broker_port,
        args.key_file,
        args.last_good,
    )


def _teller(args: argparse.Namespace) -> Say:
    """What the summary is told to; its first line comes once the site serves."""
    if not args.json:
        return _tell
    told = False

    def tell(line: str) -> None:
        nonlocal told
        if not told:
            told = True
            # In the foreground the supervisor's event loop runs here; status has one of its own.
            asking = threading.Thread(target=_tell_status, args=(args.site,), name="up status")
            asking.start()
            asking.join()

    return tell


def _tell_status(site: str) -> None:
    from sealmq.site.layout import Layout

    from .status import seen

    _tell(json.dumps(seen(Layout.open(site)).to_json()))


# A terminal may have gone, a file's disk be full: no site ends, and no part stays ended, for that.
def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _tell(line: str) -> None:
    print(line, flush=True)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; 1 to 65535 is right")
    return int(text)
