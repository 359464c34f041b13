"""What commands that change keys share: the way to the key generator, and what they say.

Two ways: the running key generator over its socket, or its store while the site is down. Never
both, and whichever it is stands open before anything is changed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from sealmq.kg.errors import Bad, StoreBusy
from sealmq.kglink import Applied, KgBad, KgClient, KgUnavailable
from sealmq.site.layout import Layout

from .errors import OperatorError

T = TypeVar("T")


def add_key_file(parser: argparse.ArgumentParser) -> None:
    """--key-file, which counts while the site is down."""
    parser.add_argument("--key-file", metavar="FILE", help="instead of the one in sealmq.toml")


def key_file(args: argparse.Namespace) -> Path | None:
    """What --key-file says, as seen from here."""
    return Path(args.key_file).absolute() if args.key_file else None


def ask(
    layout: Layout,
    over_socket: Callable[[KgClient], Coroutine[None, None, T]],
    by_ourselves: Callable[[], T],
) -> T:
    """The one or the other; KgError and KgRefusal say why neither will."""

    async def first() -> T:
        async with await KgClient.connect(layout.kg_socket) as kg:
            return await over_socket(kg)

    try:
        return asyncio.run(first())
    except KgUnavailable as error:
        try:
            return by_ourselves()
        except StoreBusy:
            raise OperatorError(
                f"the key generator runs, but: {error}", hint=f"sealmq status {layout.root}"
            ) from None


@contextlib.contextmanager
def after_edit(waits: str) -> Iterator[None]:
    """Where the key generator refuses what sealmq.toml has been made to say: that, and what waits
    until it takes it.
    """
    try:
        yield
    except (Bad, KgBad) as error:
        raise OperatorError(
            f"sealmq.toml is changed, but the key generator refuses it: {error}",
            waits,
            hint=error.hint,
        ) from None


def as_json(done: Applied) -> dict[str, Any]:
    """What a change led to. until: Unix time at which the epoch before ends."""
    return {
        "kseq": done.kseq,
        "epochs": [{"label": e.label, "epoch": e.epoch, "until": e.until} for e in done.epochs],
        "left": [
            {"client": client, "label": label, "why": why} for client, label, why in done.left
        ],
        "notes": done.notes,
    }


def say_epochs(done: Applied) -> None:
    """Which labels have a new epoch, and until when the old ones run."""
    if not done.epochs:
        print("no label got a new epoch")
    for until in sorted({new.until for new in done.epochs}):
        mine = [new for new in done.epochs if new.until == until]
        ends = "have ended"
        if until > time.time():
            ends = time.strftime("run until %Y-%m-%d %H:%M:%S %Z", time.localtime(until))
        print(f"new epochs ({len(mine)}); the old ones {ends}:")
        width = max(len(new.label) for new in mine)
        for new in mine:
            print(f"  {new.label.ljust(width)}  {new.epoch}")
    for note in done.notes:
        print(f"note: {note}")
