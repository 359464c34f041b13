"""`sealmq sub`: subscribe as a client, with the flags, output and exit codes of mosquitto_sub.

Only messages that verify under both layers are printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from sealmq.families import registry
from sealmq.plain import plain

from .errors import OK, OperatorError

if TYPE_CHECKING:
    from sealmq.client import Client

_EXAMPLES = """\
examples:
  sealmq sub factory --client monitor -t 'machine/+/temperature' -v
  sealmq sub factory --client monitor -t machine/1/temperature -C 1 -W 10
  sealmq sub factory --client monitor -t '#' --json | jq -r .topic
  sealmq sub factory --client monitor -t '#' -q 1 -c -i night-shift    what came while it was away
  sealmq sub --enrolment panel.sealmq.json -t machine/1/setpoint
{examples}
{needed}The payload is printed with a line end behind it, with -v the topic before it. An empty one
prints nothing, with -v "topic (null)". Ctrl-C ends it with exit code 0. Filters that are refused
are told on stderr; when all are, it ends.

On a terminal what is not printable is escaped, but for line ends and tabs in payloads. Into a file
or a pipe go the bytes as they came, as with mosquitto_sub; --json tells topic and payload apart
whatever they hold.

"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq sub"""
    from .acting import CODES, add_said, add_version, add_who, said_examples

    needed = [m.says.needed for m in registry.manifests() if m.says and m.says.needed]
    examples = _EXAMPLES.format(
        examples=said_examples("sub"), needed="".join(f"{line}\n" for line in needed)
    )
    parser = sub.add_parser(
        "sub",
        short_help=False,
        help="subscribe as a client and print messages, as mosquitto_sub does",
        description="Subscribe as a client and print what arrives.",
        epilog=examples + CODES,
    )
    add_who(parser, letters=True)
    parser.add_argument(
        "-t",
        "--topic",
        metavar="FILTER",
        action="append",
        help="the topic filter; may be repeated",
    )
    add_said(parser)
    parser.add_argument("-C", "--count", metavar="N", help="end after N messages")
    parser.add_argument(
        "-W", "--timeout", metavar="SECONDS", help="end after so many seconds, with exit code 27"
    )
    parser.add_argument("-q", "--qos", metavar="QOS", default="0", help="0 (default), 1 or 2")
    parser.add_argument(
        "-c",
        "--disable-clean-session",
        action="store_true",
        help="a session that goes on where the last one with the same -i ended, after what was "
        "printed; the embedded broker keeps none",
    )
    parser.add_argument(
        "-x",
        "--session-expiry-interval",
        metavar="SECONDS",
        help="with -c and -V mqttv5: for how long the session goes on without a connection "
        "(default: until one without -c takes its place)",
    )
    parser.add_argument("-i", "--id", metavar="ID", help="the MQTT client id (default: random)")
    add_version(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="print the topic as well")
    parser.add_argument(
        "-N", "--no-eol", action="store_true", help="no line end behind the payload"
    )
    parser.add_argument(
        "-R", "--no-retained", action="store_true", help="leave out retained messages"
    )
    parser.add_argument(
        "-d",
        "--debug",
        action="store_true",
        help="tell on stderr what was granted, and in the end what was refused",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="a JSON object a line: topic, payload (or payload_hex), label, sender, age, how, ...",
    )


def run(args: argparse.Namespace) -> int:
    """Print messages until the count, the time or a signal ends it."""
    from .acting import act, check_who, until_over

    begun = time.monotonic()
    if sys.stdout is None:
        raise OperatorError("standard output is closed", hint="> /dev/null where nobody reads it")
    check_who(args)
    _check(args)
    return act(until_over(_receive(args), args.timeout, begun))


def _expiry(args: argparse.Namespace) -> int | None:
    from .acting import wrong

    text = args.session_expiry_interval
    if text is None:
        return None
    if not args.disable_clean_session or args.protocol != 5:
        raise wrong(args, "-x without -c and -V mqttv5", "only MQTT 5 says how long one is kept")
    if not text.isdecimal() or not 0 < int(text) < 0xFFFFFFFF:
        raise wrong(args, f"session expiry interval {text}", "it is 1 to 4294967294 seconds")
    return int(text)


def _check(args: argparse.Namespace) -> None:
    from .acting import check_values, said, version, wrong
    from .pub import seconds

    if not args.topic:
        raise wrong(args, "no topic", "at least one -t FILTER")
    given = said(args)
    check_values(args, *((m.load(says.check), [value]) for m, says, value in given.values()))
    args.said = {option: value for option, (_, _, value) in given.items()}
    if args.qos not in ("0", "1", "2"):
        raise wrong(args, f"QoS {args.qos}", "it is 0, 1 or 2")
    args.qos = int(args.qos)
    args.protocol = version(args)
    if args.disable_clean_session and not args.id:
        raise wrong(args, "-c without -i", "a session goes on under the id that it began with")
    args.expiry = _expiry(args)
    if args.id is not None and not _is_id(args.id):
        raise wrong(args, f"client id {args.id!r}", "it has 1 to 64 bytes of UTF-8")
    if args.count is not None:
        if not args.count.isdecimal() or int(args.count) < 1:
            raise wrong(args, f"message count {args.count}", "it is a number above 0")
        args.count = int(args.count)
    if args.timeout is not None:
        args.timeout = seconds(args, args.timeout)


def _is_id(text: str) -> bool:
    try:
        return 0 < len(text.encode()) <= 64
    except UnicodeEncodeError:
        return False


async def _receive(args: argparse.Namespace) -> int:
    from sealmq.client import News, Notice, Options, Refused

    from .acting import client_of, told_of_filter

    connected = False

    def on_state(what: str) -> None:
        # mosquitto_sub waits for a lost broker too; it is only silent about it.
        if connected:
            print(f"sealmq: {plain(what)}", file=sys.stderr)

    def on_notice(notice: Notice) -> None:
        # What was granted before may be refused after a reconnect.
        by = f" by rule {notice.rule}" if notice.rule else ""
        text = f"{notice.what or 'packet'} refused{by}: {notice.reason}"
        print(f"sealmq: {plain(text)}", file=sys.stderr)

    def on_news(news: News) -> None:
        text = news.said.decode(errors="backslashreplace")
        print(f"sealmq: news of {news.family}: {plain(text)}", file=sys.stderr)

    clean = not args.disable_clean_session
    options = Options(
        client_id=args.id,
        clean=clean,
        inbox_messages=256,
        settle=True,
        protocol=args.protocol,
        expiry=args.expiry,
    )
    asks = await client_of(args, options, on_notice, on_state, on_news)
    async with _connected(args, asks) as client:
        answers = await client.subscribe_each(*args.topic, qos=args.qos, **args.said)
        refused = [
            told_of_filter(args, filt, answer)
            for filt, answer in zip(args.topic, answers, strict=True)
            if isinstance(answer, Refused)
        ]
        if len(refused) == len(answers):
            raise refused[0]
        for error in refused:
            print(f"sealmq: {error}", file=sys.stderr)
        if args.debug:
            for filt, granted in zip(args.topic, answers, strict=True):
                if isinstance(granted, int):
                    print(f"sealmq: subscribed: {plain(filt)} (QoS {granted})", file=sys.stderr)
        connected = True
        count = 0
        try:
            async for message in client.messages():
                if not (args.no_retained and message.retain):
                    _print(args, message)
                    count += 1
                # What is not printed comes again, in a session that goes on.
                client.settle(message)
                if count == args.count:
                    break
        finally:
            if args.debug and client.refused:
                print(f"sealmq: packets refused here: {_counts(client.refused)}", file=sys.stderr)
    return OK


@asynccontextmanager
async def _connected(args: argparse.Namespace, client: Client) -> AsyncIterator[Client]:
    from sealmq.client import NotAuthorised

    try:
        await client.connect(within=0)
    except NotAuthorised as error:
        if client.options.clean:
            raise
        raise OperatorError(str(error), hint=_no_session(args), code=error.return_code) from None
    try:
        yield client
    finally:
        await client.disconnect()


# CONNACK 5 has no room for a reason; beside the site we can see that it was not the keys.
def _no_session(args: argparse.Namespace) -> str:
    from sealmq.broker.promises import CURE
    from sealmq.run.ready import read
    from sealmq.site.layout import Layout

    broker = read(Layout.open(args.site), "broker") if args.site else None
    if broker is not None and broker.kind == "embedded":
        return f"its embedded broker keeps no sessions: leave out -c; {CURE}"
    return (
        "does its broker keep sessions? The site's audit log says why (broker.promise."
        "persistent-session if not); without -c it need not"
    )


def _print(args: argparse.Namespace, message: Any) -> None:
    out = sys.stdout.buffer
    # A terminal would obey it. Into a file or a pipe go the bytes as they came.
    topic, payload = message.topic, message.payload
    if out.isatty():
        topic = plain(topic)
        text = payload.decode(errors="backslashreplace")
        payload = "".join(c if c in "\n\t" else plain(c) for c in text).encode()
    end = b"" if args.no_eol else b"\n"
    if args.json:
        out.write(json.dumps(_as_json(message)).encode() + b"\n")
    elif args.verbose:
        if payload:
            out.write(topic.encode() + b" " + payload + end)
        elif end:
            out.write(topic.encode() + b" (null)" + end)
    elif payload:
        out.write(payload + end)
    out.flush()


def _as_json(message: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"topic": message.topic}
    try:
        told["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        told["payload_hex"] = message.payload.hex()
    return told | {
        "payloadlen": len(message.payload),
        "qos": message.qos,
        "retain": message.retain,
        "label": message.label,
        "sender": message.sender,
        "label_number": message.label_number,
        "sender_number": message.sender_number,
        "age": message.age,
        "how": message.how.name.lower(),
        "received": round(time.time(), 3),
    }


def _counts(refused: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(refused.items()))
