"""`sealmq trust assess`: a client that judges values of other sites by a range, and says so."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from sealmq.cli.errors import OK, UsageError
from sealmq.plain import plain

if TYPE_CHECKING:
    from sealmq.client import Client, Message

_SHOWN = 80


class Range(NamedTuple):
    """low ≤ value ≤ high, of the payload or of a field in it."""

    low: float
    high: float
    field: tuple[str, ...] = ()

    def judged(self, payload: bytes) -> tuple[bool, str]:
        """Whether it is good, and why, in words. What is no number is bad."""
        try:
            value = self._value(payload)
        except (ValueError, RecursionError) as error:
            return False, str(error)[:_SHOWN] or "not readable"
        if not self.low <= value <= self.high:
            return False, f"{value:g} is not in {self.low:g}..{self.high:g}"
        return True, f"{value:g}"

    def _value(self, payload: bytes) -> float:
        found: object
        try:
            found = json.loads(payload)
        except ValueError:
            raise ValueError("no number" if not self.field else "no JSON") from None
        for name in self.field:
            if not isinstance(found, dict) or name not in found:
                raise ValueError(f"no field {'.'.join(self.field)}")
            found = found[name]
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise ValueError("no number")
        try:
            value = float(found)
        except OverflowError:
            raise ValueError("no number") from None
        if not math.isfinite(value):
            raise ValueError("no number")
        return value


def read(text: str, field: str | None) -> Range:
    """LO..HI. UsageError."""
    low, dots, high = text.partition("..")
    try:
        made = Range(float(low), float(high), tuple(field.split(".")) if field else ())
    except ValueError:
        made = None
    if made is None or not dots or not made.low <= made.high:
        raise UsageError(f"{text!r} is no range", "--range=-20..60")
    return made


def options(p: argparse.ArgumentParser) -> None:
    """Of the verb."""
    from sealmq.cli.acting import add_who

    add_who(p)
    p.add_argument(
        "-t", "--topic", metavar="FILTER", action="append", required=True,
        help="what it judges, @SITE/TOPIC; may be repeated",
    )  # fmt: skip
    p.add_argument("--range", metavar="LO..HI", required=True, help="what a good value lies in")
    p.add_argument("--field", metavar="PATH", help="of a JSON object: names with dots between")
    p.add_argument("-C", "--count", metavar="N", type=int, help="end after N messages")
    p.add_argument(
        "-W", "--timeout", metavar="SECONDS", help="end after so many seconds, with exit code 27"
    )


def run(args: argparse.Namespace) -> int:
    """Until the count, the time or a signal."""
    from sealmq.cli.acting import act, check_who, client_of, told_of_filter, until_over
    from sealmq.cli.pub import seconds
    from sealmq.client import Options, Refused

    begun = time.monotonic()
    check_who(args)
    wanted = read(args.range, args.field)
    if args.count is not None and args.count < 1:
        raise UsageError(f"{args.count} messages", "-C 10")
    for filt in args.topic:
        if not filt.startswith("@") or "/" not in filt:
            raise UsageError(
                f"-t {filt}",
                "it judges what comes from other sites, @SITE/TOPIC",
                hint=f"-t '@SITE/{filt.removeprefix('@')}'; SITE: a peer, as `sealmq peer list` "
                "names it",
            )
    if args.timeout is not None:
        args.timeout = seconds(args, args.timeout)

    async def whole() -> int:
        async with await client_of(args, Options(reconnect=False)) as client:
            for filt in args.topic:
                try:
                    await client.subscribe(filt, qos=1)
                except Refused as error:
                    raise told_of_filter(args, filt, error) from None
            return await judge(client, wanted, args.count, args.json)

    return act(until_over(whole(), args.timeout, begun))


async def judge(client: Client, wanted: Range, most: int | None, as_json: bool) -> int:
    """Each message as it comes; a vote of each that is another site's. What is too much at once is
    counted, and left out."""
    from sealmq_spec.errors import RateLimited

    counts: Counter[str] = Counter()
    async for message in client.messages():
        good, why = wanted.judged(message.payload)
        voted = bool(message.id)
        if voted:
            try:
                await client.feedback(message, good)
            except RateLimited:
                voted = False
        counts["good" if good else "bad"] += 1
        counts["not said"] += not voted
        _show(message, good, why, voted, as_json)
        if most is not None and counts["good"] + counts["bad"] >= most:
            break
    return OK


def _show(message: Message, good: bool, why: str, voted: bool, as_json: bool) -> None:
    said = {"topic": message.topic, "good": good, "why": why, "said": voted}
    if as_json:
        print(json.dumps(said), flush=True)
        return
    more = "" if voted else "  (not said)"
    print(plain(f"{'good' if good else 'BAD '}  {message.topic}: {why}{more}"), flush=True)
