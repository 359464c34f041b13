"""Scripts of the asyncio client: what they begin with, and how one is run."""

from __future__ import annotations

from device_script import PRELUDE, Board

AIO = (
    PRELUDE.replace("c = client()\n", "")
    + """
import asyncio
from sealmq_device.aio import Client as AioClient
async def caught(what):
    try:
        return await what
    except errors.SealError as error:
        say(type(error).__name__, getattr(error, "rule", ""), getattr(error, "reason", ""))
    except OSError as error:
        say("OSError", errno.errorcode.get(error.errno or error.args[0]))
def client(**options):
    options.setdefault("timeout", 3)
    return AioClient(sys.argv[1], **options)
# Gives others their turn until it is so.
async def until(what):
    while not what():
        await asyncio.sleep(0.01)
c = client()
"""
)


def run(b: Board, interpreter: str, body: str) -> list[str]:
    """What the coroutine's `body` prints."""
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    script = f"async def main():\n{lines}\nasyncio.run(main())\n"
    return b.run(interpreter, script, AIO)
