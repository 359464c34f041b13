"""What `pub` and `sub` share: acting as a client, and what becomes of an error.

Exit codes are those of mosquitto_pub and mosquitto_sub where they have one.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from sealmq.client import (
    Client,
    ClientError,
    ConnectRefused,
    News,
    Notice,
    Options,
    Refused,
    TimedOut,
)
from sealmq.client.client import check_private
from sealmq.client.lent import LendRefused, lent_client
from sealmq.families import registry
from sealmq.families.manifest import Manifest, Says
from sealmq.near import closest
from sealmq.plain import plain
from sealmq_spec.errors import Denied, SealError

from .errors import FAILED, OK, OperatorError, UsageError

if TYPE_CHECKING:
    from sealmq.site.config import Config

CONNACKS = (3, 5)
REFUSED = 12
TIMED_OUT = 27
_RESERVED = "filters that begin with {} are reserved"
"""A mediator's reason, of what no family and no peer has."""

CODES = """\
exit codes: 0 done; 1 not possible (gateway away, wrong value); 2 wrong usage; 3 the mediator's
broker or store is away; 5 the mediator refused the connection; 12 refused, with the reason on
stderr; 27 timed out; 130 interrupted
"""


def add_who(parser: argparse.ArgumentParser, letters: bool = False) -> None:
    """The arguments that say as whom, and to which mediator. letters: by mosquitto_pub's, too. Its
    -h is no help, which would be printed, with 0 as exit code."""
    host = ["-h", "--host"] if letters else ["--host"]
    port = ["-p", "--port"] if letters else ["--port"]
    parser.add_argument(
        "site", metavar="SITE", nargs="?", help="the site's folder, on the gateway's machine"
    )
    parser.add_argument("--client", metavar="NAME", help="act as this client of the site")
    parser.add_argument(
        "--enrolment", metavar="FILE", help="elsewhere, instead of SITE: the client's enrolment"
    )
    parser.add_argument(
        "--state",
        metavar="FILE",
        help="with --enrolment: what is kept between runs (default: the enrolment's name with "
        ".state behind it)",
    )
    parser.add_argument(*host, help="with --enrolment: another mediator address")
    parser.add_argument(
        *port, type=int, metavar="PORT", help="with --enrolment: another mediator port"
    )


def add_version(parser: argparse.ArgumentParser) -> None:
    """-V, as mosquitto_pub has it."""
    parser.add_argument(
        "-V",
        "--protocol-version",
        metavar="VERSION",
        default="mqttv311",
        help="mqttv311 (default) or mqttv5; a gateway takes both",
    )


_VERSIONS = {"mqttv311": 4, "311": 4, "mqttv5": 5, "5": 5}


def version(args: argparse.Namespace) -> int:
    """The protocol level that was given. OperatorError."""
    level = _VERSIONS.get(args.protocol_version)
    if level is None:
        raise wrong(args, f"protocol version {args.protocol_version}", "it is mqttv311 or mqttv5")
    return level


def add_said(parser: argparse.ArgumentParser) -> None:
    """The options of what a client says with a subscription, of each family that has one."""
    for manifest in registry.manifests():
        if says := manifest.says:
            parser.add_argument(f"--{says.option}", metavar=says.metavar, help=says.help)


def said(args: argparse.Namespace) -> dict[str, tuple[Manifest, Says, str]]:
    """What was given of these options, by option."""
    found = {}
    for manifest in registry.manifests():
        says = manifest.says
        if says is not None and (value := getattr(args, says.option, None)) is not None:
            found[says.option] = manifest, says, value
    return found


def add_put(parser: argparse.ArgumentParser) -> str:
    """The options of what a client puts into a message, of each family that has one; examples."""
    lines: list[str] = []
    for manifest in registry.manifests():
        if puts := manifest.puts:
            parser.add_argument(
                f"--{puts.option.replace('_', '-')}",
                dest=f"put_{puts.option}",
                metavar=puts.metavar,
                action="append",
                help=puts.help,
            )
            lines += puts.examples
    return "".join(f"  {line}\n" for line in lines)


def put(args: argparse.Namespace) -> dict[str, list[str]]:
    """What was given of these options, by option; checked. UsageError."""
    options = (m.puts.option for m in registry.manifests() if m.puts)
    found = {option: given for option in options if (given := getattr(args, f"put_{option}"))}
    check_values(args, (lambda _: registry.items(found), ("",)))
    return found


def said_examples(command: str) -> str:
    """Lines for a command's help, of each family that has an option."""
    found = [m.says.examples.get(command, ()) for m in registry.manifests() if m.says]
    return "".join(f"  {line}\n" for lines in found for line in lines)


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """-W: of a command that waits for an answer; mosquitto_sub's letter."""
    parser.add_argument(
        "-W",
        "--timeout",
        metavar="SECONDS",
        default="30",
        help="give up after so many seconds without an answer (default: 30)",
    )


async def client_of(
    args: argparse.Namespace,
    options: Options,
    on_notice: Callable[[Notice], None] | None = None,
    on_state: Callable[[str], None] | None = None,
    on_news: Callable[[News], None] | None = None,
) -> Client:
    """The client that the arguments name, not yet connected."""
    if args.enrolment:
        check_private(args.enrolment)
        state = args.state or f"{args.enrolment}.state"
        return Client.from_enrolment(
            args.enrolment,
            state,
            host=args.host,
            port=args.port,
            options=options,
            on_notice=on_notice,
            on_state=on_state,
            on_news=on_news,
        )
    return await lent_client(
        args.site,
        args.client,
        options=options,
        on_notice=on_notice,
        on_state=on_state,
        on_news=on_news,
    )


async def asking_client(args: argparse.Namespace) -> Client:
    """The client that the arguments name, for a family's commands; `timeout` in seconds."""
    options = Options(
        timeout=args.timeout,
        connect_timeout=min(args.timeout, 10.0),
        reconnect=False,
    )
    return await client_of(args, options)


def check_who(args: argparse.Namespace) -> None:
    """SITE with --client, or --enrolment; the rest belongs to the latter."""
    check_values(args, (str.encode, (args.client,)))
    if args.enrolment:
        if args.site or args.client:
            raise _usage(args, "both SITE and --enrolment", "an enrolment says who and where")
    elif not args.site or not args.client:
        raise _usage(args, "nobody to act as", "SITE and --client NAME, or --enrolment FILE")
    elif args.state or args.host or args.port is not None:
        raise _usage(args, "--state, --host or --port with SITE", "they go with --enrolment")
    if args.port is not None and not 0 < args.port < 65536:
        raise _usage(args, f"port {args.port}", "it is 1 to 65535")


def _usage(args: argparse.Namespace, what: str, right: str) -> UsageError:
    return UsageError(what, right, hint=f"sealmq {args.command} --help")


def wrong(args: argparse.Namespace, what: str, right: str) -> OperatorError:
    """A value that mosquitto's tools refuse with exit code 1 too."""
    return OperatorError(what, right, hint=f"sealmq {args.command} --help")


def check_values(
    args: argparse.Namespace, *checks: tuple[Callable[[str], object], Iterable[str | None]]
) -> None:
    """What a client cannot say is told before anybody is asked: each check with its values."""
    try:
        for check, values in checks:
            for value in values:
                if value is not None:
                    check(value)
    except SealError as error:
        raise OperatorError(plain(str(error)), hint=f"sealmq {args.command} --help") from None
    except UnicodeEncodeError:
        raise OperatorError("what is not UTF-8 can be no filter and no name") from None


def act(work: Coroutine[Any, Any, int]) -> int:
    """Run it; turn what the client library raises into what an operator reads."""
    try:
        return asyncio.run(work)
    except (ClientError, SealError) as error:
        raise told(error) from None


async def until_over(work: Coroutine[Any, Any, int], seconds: float | None, begun: float) -> int:
    """Its exit code; OK after SIGINT or SIGTERM, TIMED_OUT so many seconds after begun, which
    time.monotonic() has said."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work, name="until over")
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    left = None if seconds is None else max(0.0, begun + seconds - time.monotonic())
    done, _ = await asyncio.wait([task], timeout=left)
    if not done:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        return task.result()
    if done:
        return OK
    print("Timed out", file=sys.stderr)
    return TIMED_OUT


def told(error: ClientError | SealError) -> OperatorError:
    """The error as one line, with its exit code."""
    code = FAILED
    if isinstance(error, ConnectRefused):
        # CONNACK codes that no mediator of ours sends would collide with other meanings.
        code = error.return_code if error.return_code in CONNACKS else FAILED
    elif isinstance(error, LendRefused):
        code = FAILED
    elif isinstance(error, Refused | Denied):
        code = REFUSED
    elif isinstance(error, TimedOut):
        code = TIMED_OUT
    hint = getattr(error, "hint", None) or _hint(getattr(error, "rule", ""))
    return OperatorError(plain(str(error)), hint=hint, code=code)


def told_of_filter(args: argparse.Namespace, filt: str, error: Refused) -> OperatorError:
    """As `told`, of a filter; of one that no family and no peer has, with what was meant."""
    as_it_is = told(error)
    config = _config(args)
    if error.reason == _RESERVED.format("!"):
        for option, (manifest, _, _) in said(args).items():
            if config is None or manifest.name not in config.policy.order:
                what = f"{filt}: this site's policy has no {manifest.name}"
                return OperatorError(what, hint=f"leave --{option} out", code=as_it_is.code)
    elif error.reason == _RESERVED.format("@") and filt.startswith("@"):
        what, hint = no_peer_s(args, config, filt)
        if what:
            return OperatorError(f"{plain(filt)}: {what}", hint=hint, code=as_it_is.code)
    return as_it_is


def _config(args: argparse.Namespace) -> Config | None:
    """What the site's file says, where we are beside it."""
    from sealmq.site.config import load
    from sealmq.site.errors import SiteError
    from sealmq.site.layout import Layout

    try:
        return load(Layout.open(args.site).config) if args.site else None
    except (SiteError, OSError):
        return None


def no_peer_s(args: argparse.Namespace, config: Config | None, filt: str) -> tuple[str, str]:
    """Of a filter that begins with @: why no peer's topics are meant, and a hint. ("", ""): the
    file has the peer, and what is in force may not.
    """
    name, slash, _ = filt[1:].partition("/")
    shown = plain(name)
    if config is None:
        return (
            f"the site has no peer {shown!r}, or imports nothing of it",
            "its operator sees that: sealmq peer list SITE",
        )
    if name not in config.peers:
        meant = closest(name, config.peers)
        there = f"did you mean @{meant}/...?" if meant else f"sealmq peer list {args.site}"
        return f"there is no peer {shown!r}", there
    if not slash:
        return "that is a peer alone", f"@{name}/#, or @{name}/TOPIC"
    if not config.peers[name].imports:
        return (
            f"nothing is imported of {name}",
            f"sealmq peer add {args.site} {name} --import LABEL",
        )
    return "", ""


def _hint(rule: str) -> str | None:
    """What the rule's family says about it."""
    return next((m.hints[rule] for m in registry.manifests() if rule in m.hints), None)
