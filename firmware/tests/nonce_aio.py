# Runs in MicroPython: the asyncio client of a board, with tasks that publish side by side, some of
# which are cancelled. argv: a JSON file as for nonce_device.py; how it ends is printed.
# mypy: ignore-errors
import asyncio
import json
import sys

from recording_device import recording
from sealmq_device import aio
from sealmq_spec.errors import SealError

with open(sys.argv[1]) as f:
    told = json.loads(f.read())
TASKS = 4
MESSAGES = 12
count = {"published": 0, "failed": 0, "connects": 0}


async def publisher(c, task):
    for n in range(MESSAGES):
        word = "%s%d %d" % (told["word"], task, n)
        try:
            await c.publish("t/%d" % task, word.encode(), qos=n & 1)
            count["published"] += 1
        except (SealError, OSError):
            count["failed"] += 1
        await asyncio.sleep_ms(3 * task)
        if task == 2 and n == 6:
            c.core.session.ctr = max(c.core.session.ctr, 0xFFFFF0)


async def keeper(c):
    while True:
        try:
            await c.connect()
            count["connects"] += 1
            await c.resend()
            await c.down.wait()
        except (SealError, OSError):
            await asyncio.sleep_ms(5)


async def main():
    c = aio.Client(told["enrolment"], make=recording(told["record"]), timeout=3)
    keep = asyncio.create_task(keeper(c))
    await c.up.wait()
    tasks = [asyncio.create_task(publisher(c, task)) for task in range(TASKS)]
    lost = asyncio.create_task(publisher(c, 7))
    await asyncio.sleep_ms(20)
    lost.cancel()
    for task in tasks:
        await task
    keep.cancel()
    await c.disconnect()


asyncio.run(main())
print(json.dumps(count))
