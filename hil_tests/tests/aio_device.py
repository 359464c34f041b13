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
    print("accepted", len(set(ctrs)))


async def listen(count):
    heard = set()
    async for message in client:
        heard.add(int(message.payload))
        if len(heard) == count:
            break
    print("heard", sorted(heard) == list(range(min(heard), min(heard) + count)))


async def main():
    await client.connect()
    print("up", client.has_kg_time())
    await client.subscribe(topic, 1)
    await asyncio.gather(publish(range(count)), listen(count))
    try:
        await client.publish("machine/2/temperature", b"1", qos=1)
    except Exception as error:
        print("refused", type(error).__name__)
    await client.disconnect()
    await client.connect()
    await asyncio.gather(publish(range(count, 2 * count)), listen(count))
    await client.disconnect()
    print("end", client.refused, client.unacked)


asyncio.run(main())
