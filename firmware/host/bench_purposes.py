# Run by MicroPython: what a new board with a set of files for purposes does, for bench_device.py.
#     -m bench_purposes ENROLMENT SET
# It provisions, connects, reserves, subscribes for a purpose (not `sensor-purposes`, which cannot
# receive), publishes with QoS 1, and receives what it published. Prints the interpreter's version.
import sys

_TYPING = False
if _TYPING:
    from typing import Any

TOPIC = "machine/1/temperature"
got: "list[Any]" = []


def blocking(receives: bool) -> None:
    from sealmq_device import Client

    c = Client(sys.argv[1])
    c.set_callback(got.append)
    c.connect()
    c.reserve(TOPIC, ("billing",), ("marketing",))
    if receives:
        c.subscribe("machine/#", 1, "billing")
    c.publish(TOPIC, bytes(64), False, 1)
    while receives and not got:
        c.wait_msg()


async def together() -> None:
    from sealmq_device import aio

    c = aio.Client(sys.argv[1])
    await c.connect()
    await c.reserve(TOPIC, ("billing",), ("marketing",))
    await c.subscribe("machine/#", 1, "billing")
    await c.publish(TOPIC, bytes(64), False, 1)
    async for message in c:
        got.append(message)
        break


if sys.argv[2] == "asyncio":
    import asyncio

    asyncio.run(together())
else:
    blocking(sys.argv[2] != "sensor-purposes")
print(".".join(str(n) for n in sys.implementation[1][:3]))  # type: ignore[index]
