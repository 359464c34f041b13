"""`sealmq pub`: publish as a client, with the flags and meaning of mosquitto_pub.

Unlike there, success means that the gateway has accepted the message: for QoS 0 too its receipt is
waited for (SPEC.md 4.4), and a refusal is told with its rule and reason.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import contextlib
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from .errors import OK, OperatorError

if TYPE_CHECKING:
    from sealmq.client import Client

_EXAMPLES = """\
examples:
  sealmq pub factory --client m1-temp-sensor -t machine/1/temperature -m 21.5
  sealmq pub factory --client m1-control-panel -t machine/1/setpoint -m 20 -q 1 -r
  sensor-reader | sealmq pub factory --client m1-temp-sensor -t machine/1/temperature -l
  sealmq pub factory --client m1-control-panel -t machine/1/setpoint -r -n     clear it
  sealmq pub --enrolment panel.sealmq.json -t machine/1/setpoint -m 20

"""

# Messages of -l that may be underway at once.
_PIPELINE = 32
_CHUNKS = 4
_MAX = 1024 * 1024


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq pub"""
    from .acting import CODES, add_put, add_timeout, add_version, add_who

    parser = sub.add_parser(
        "pub",
        short_help=False,
        help="publish a message as a client, as mosquitto_pub does",
        description="Publish as a client. It succeeds when the gateway has accepted the message.",
    )
    add_who(parser, letters=True)
    parser.add_argument("-t", "--topic", metavar="TOPIC", help="the topic")
    parser.add_argument("-m", "--message", metavar="MSG", help="the message")
    parser.add_argument("-f", "--file", metavar="FILE", help="the content of a file")
    parser.add_argument(
        "-l", "--stdin-line", action="store_true", help="each line of stdin as a message"
    )
    parser.add_argument(
        "-s", "--stdin-file", action="store_true", help="all of stdin as one message"
    )
    parser.add_argument(
        "-n",
        "--null-message",
        action="store_true",
        help="an empty message; with -r: remove the retained one",
    )
    parser.add_argument("-q", "--qos", metavar="QOS", default="0", help="0 (default), 1 or 2")
    parser.add_argument("-r", "--retain", action="store_true", help="retain the message")
    add_version(parser)
    parser.add_argument(
        "--life",
        metavar="N",
        default="0",
        help="how long it may be underway or retained: 0 (default): 60 s; 1 to 31: 2^N s; "
        "255: unlimited",
    )
    parser.add_argument(
        "--json", action="store_true", help="a line for each message that was accepted, as JSON"
    )
    more = add_put(parser)
    parser.epilog = _EXAMPLES.rstrip("\n") + f"\n{more}\n" + CODES
    add_timeout(parser)


def run(args: argparse.Namespace) -> int:
    """Publish; OK when all was accepted."""
    from .acting import act, check_who

    check_who(args)
    _check(args)
    message = None if args.stdin_line else _message(args)
    return act(_publish(args, message))


def _check(args: argparse.Namespace) -> None:
    from .acting import put, version, wrong

    modes = (args.message is not None, args.file is not None, args.stdin_line, args.stdin_file)
    chosen = sum(modes) + args.null_message
    if args.topic is None or chosen == 0:
        raise wrong(args, "no topic or no message", "both are needed: -t, and -m, -f, -l, -s or -n")
    if chosen > 1:
        raise wrong(args, "several kinds of message", "one of -m, -f, -l, -s, -n")
    if args.qos not in ("0", "1", "2"):
        raise wrong(args, f"QoS {args.qos}", "it is 0, 1 or 2")
    args.qos = int(args.qos)
    args.protocol = version(args)
    if not args.life.isdecimal() or not (int(args.life) <= 31 or int(args.life) == 255):
        raise wrong(args, f"life {args.life}", "it is 0 to 31, or 255")
    args.life = int(args.life)
    args.put = put(args)
    args.timeout = seconds(args, args.timeout)


def seconds(args: argparse.Namespace, text: str) -> float:
    """A positive number of seconds."""
    from .acting import wrong

    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise wrong(args, f"timeout {text}", "it is a number of seconds above 0")
    return value


def _message(args: argparse.Namespace) -> bytes:
    if args.null_message:
        return b""
    if args.message is not None:
        return os.fsencode(args.message)
    if args.stdin_file:
        return _read(_stdin().buffer, "standard input")
    try:
        with Path(args.file).open("rb") as file:
            return _read(file, args.file)
    except OSError as error:
        raise OperatorError(f"{args.file}: {error.strerror or error}") from None


def _read(file: BinaryIO, name: str) -> bytes:
    data = file.read(_MAX + 1)
    if len(data) > _MAX:
        raise OperatorError(f"{name}: it has more than {_MAX} bytes", "a message has no more")
    return data


def _stdin() -> TextIO:
    if sys.stdin is None:
        raise OperatorError("standard input is closed")
    return sys.stdin


async def _publish(args: argparse.Namespace, message: bytes | None) -> int:
    from sealmq.client import Options

    from .acting import client_of

    # A stream of lines outlives a gateway's restart; a single message is told about it.
    options = Options(
        timeout=args.timeout,
        connect_timeout=min(args.timeout, 10.0),
        reconnect=message is None,
        protocol=args.protocol,
    )
    client = await client_of(args, options)
    await client.connect(within=0)
    try:
        if message is not None:
            await _one(client, args, message)
            return OK
        return await _lines(client, args)
    finally:
        await client.disconnect()


async def _one(client: Client, args: argparse.Namespace, message: bytes, **where: int) -> None:
    """Publish it; `where`: what --json says of it besides."""
    if args.retain and not message:
        # What MQTT means by an empty retained message.
        await client.clear(args.topic, qos=args.qos, life=args.life, confirm=args.timeout)
    else:
        await client.publish(
            args.topic,
            message,
            qos=args.qos,
            retain=args.retain,
            life=args.life,
            put=args.put,
            confirm=args.timeout,
        )
    if args.json:
        told = {"topic": args.topic, "qos": args.qos, "retain": args.retain, "bytes": len(message)}
        print(json.dumps(told | where), flush=True)


async def _lines(client: Client, args: argparse.Namespace) -> int:
    """Each line at once, some underway together. A refused one is told; the others go on."""
    from sealmq.client import ClientError
    from sealmq_spec.errors import SealError

    from .acting import told

    codes: list[int] = []
    stdin = _stdin().fileno()
    places = asyncio.Semaphore(_PIPELINE)

    async def one(line: bytes, number: int) -> None:
        try:
            await _one(client, args, line, line=number)
        except (ClientError, SealError) as error:
            if client.error is not None:
                raise
            refusal = told(error)
            print(f"sealmq: {refusal}", file=sys.stderr)
            codes.append(refusal.code)
        finally:
            places.release()

    try:
        async with asyncio.TaskGroup() as group:
            number = 0
            async for line in _lines_of(stdin):
                await places.acquire()
                number += 1
                group.create_task(one(line, number), name="pub line")
    except BaseExceptionGroup as errors:
        # The client ended, for all of them alike.
        raise errors.exceptions[0] from None
    return codes[0] if codes else OK


async def _lines_of(fd: int) -> AsyncIterator[bytes]:
    """Lines without their end; a last one may lack it. TooLarge for a line no message holds."""
    from sealmq_spec.const import MAX_PAYLOAD
    from sealmq_spec.errors import TooLarge

    held = bytearray()
    async for chunk in _chunks_of(fd):
        held += chunk
        *lines, rest = held.split(b"\n")
        for line in lines:
            yield bytes(line)
        held = rest
        if len(held) > MAX_PAYLOAD:
            raise TooLarge(f"a line of more than {MAX_PAYLOAD} bytes")
    if held:
        yield bytes(held)


async def _chunks_of(fd: int) -> AsyncIterator[bytes]:
    """What a descriptor gives, until its end.

    A thread of its own reads it: a file is nothing that a loop can wait for, and a read that never
    returns must not keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(_CHUNKS)

    def read() -> None:
        try:
            data = b"-"
            while data:
                data = os.read(fd, 65536)
                asyncio.run_coroutine_threadsafe(chunks.put(data), loop).result()
        except (OSError, RuntimeError, concurrent.futures.CancelledError):
            # The loop has ended, or the descriptor is gone: nobody waits for more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(chunks.put_nowait, b"")

    threading.Thread(target=read, name="pub stdin", daemon=True).start()
    while chunk := await chunks.get():
        yield chunk
