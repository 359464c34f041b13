"""Run as a program under strace or to be killed: commits, and says each time when it is done.

committer.py DB one|many|forever
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from sealmq.families.records import TopicLabel
from sealmq.store import Store


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


async def one(store: Store, i: int) -> None:
    [held] = await store.commit([TopicLabel(f"topic/{i}", "temp", "sensor", i)])
    say(f"COMMITTED {i} {held.fresh}")


async def main(path: Path, what: str) -> None:
    store = Store.open(path)
    say("OPEN")
    if what == "one":
        for i in range(5):
            await one(store, i)
    elif what == "many":
        await asyncio.gather(*(one(store, i) for i in range(300)))
    else:
        i = 0
        while True:
            await one(store, i)
            i += 1
    say("CLOSING")
    store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
