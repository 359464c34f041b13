# Runs in MicroPython: a client that lives publishes COUNT numbers, a few at a time, over a network
# that cuts and stalls, and prints what became of each. `unreliable_device.py ENROLMENT TOPIC COUNT
# living|living_aio TIMEOUT`, started by tests.
# mypy: ignore-errors
import sys

from sealmq_device.outbox import Outbox  # noqa: TID251 - this file runs in MicroPython

enrolment, topic, count, every, kind = sys.argv[1:6]
count = int(count)
every = int(every)
# The keep alive alone would find a stalled connection only long after the questions for proof do.
options = {"keepalive": 60, "timeout": 2}
box = Outbox(queue_len=200)
box.prove_ms = 50
box.on_outcome = lambda item, how, error: print(item.msg.decode(), how)


def lives(living):
    living.on_change = lambda up, error: print("up" if up else "down", repr(error))
    living.backoff.most = 500


if kind == "living":
    from sealmq_device import Client  # noqa: TID251
    from sealmq_device.living import Living  # noqa: TID251

    living = Living(Client(enrolment, **options), outbox=box)
    lives(living)
    for n in range(count):
        living.publish(topic, str(n), qos=1 if n % every == 0 else 0)
        while every == 1 and n % 5 == 4 and box.waiting:
            living.turn(200)
    living.flush(600000)
    living.disconnect()
else:
    import asyncio

    from sealmq_device.aio import Client  # noqa: TID251
    from sealmq_device.living_aio import Living  # noqa: TID251

    async def main():
        over = asyncio.Event()

        def ended(item, how, error):
            print(item.msg.decode(), how)
            if sum(box.counts.values()) == count:
                over.set()

        box.on_outcome = ended
        living = Living(Client(enrolment, **options), outbox=box)
        lives(living)
        running = asyncio.create_task(living.run())
        for n in range(count):
            living.publish(topic, str(n), qos=1 if n % every == 0 else 0)
            if every == 1 and n % 5 == 4:
                await asyncio.sleep(0.5)
        await over.wait()
        running.cancel()
        await living.disconnect()

    asyncio.run(main())
print("end", box.counts)
