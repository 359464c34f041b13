# Runs in MicroPython: an asyncio client that reserves TOPIC while it publishes elsewhere, reads it
# for a purpose, and does so once more in a new connection. `aio_purposes.py ENROLMENT TOPIC`,
# started by tests.
# mypy: ignore-errors
import asyncio
import sys

from sealmq_device.aio import Client  # noqa: TID251 - this file runs in MicroPython

client = Client(sys.argv[1], keepalive=4, timeout=10)
topic = sys.argv[2]


async def main():
    await client.connect()
    try:
        await client.reserve("machine/2/temperature", ["control"])
    except Exception as error:
        print("refused", type(error).__name__, error.rule)
    await asyncio.gather(
        client.reserve(topic, ["operation"]),
        client.publish(topic + "/other", b"0", qos=1),
        client.presubscribe(sys.argv[1].split("/")[-2], topic + "/other", "control"),
    )
    await client.subscribe(topic, 1, "control")
    await client.publish(topic, b"1", qos=1)
    async for message in client:
        print("heard", message.payload)
        break
    await client.disconnect()
    await client.connect()
    await client.publish(topic, b"2", qos=1)
    async for message in client:
        print("heard", message.payload, "again")
        break
    await client.disconnect()
    print("end", client.refused)


asyncio.run(main())
