# Runs in MicroPython: an asyncio client that subscribes to TOPIC, publishes COUNT numbers there,
# all at once, and prints whether it heard them all; then once more after a new connection.
# `aio_device.py ENROLMENT TOPIC COUNT`, started by tests.
# mypy: ignore-errors
import asyncio
import sys

from sealmq_device.aio import Client  # noqa: TID251 - this file runs in MicroPython

client = Client(sys.argv[1], keepalive=4, timeout=10)
topic = sys.argv[2]
count = int(sys.argv[3])


async def publish(numbers):
    said = [client.publish(topic, str(n), qos=1) for n in numbers]
    ctrs = await asyncio.gather(*said)
    return len(set(ctrs))


async def listen(count):
    heard = set()
    async for message in client:
        heard.add(int(message.payload))
        if len(heard) == count:
            break
    return sorted(heard) == list(range(min(heard), min(heard) + count))


# What was published may come back before it is acknowledged: acknowledging waits for the disk too.
async def both(numbers):
    accepted, heard = await asyncio.gather(publish(numbers), listen(len(numbers)))
    print("accepted", accepted)
    print("heard", heard)


async def main():
    await client.connect()
    print("up", client.has_kg_time())
    await client.subscribe(topic, 1)
    await both(range(count))
    try:
        await client.publish("machine/2/temperature", b"1", qos=1)
    except Exception as error:
        print("refused", type(error).__name__)
    await client.disconnect()
    await client.connect()
    await both(range(count, 2 * count))
    await client.disconnect()
    print("end", client.refused, client.unacked)


asyncio.run(main())
