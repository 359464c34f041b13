# Runs in MicroPython: a client that lives tries to connect, and prints what it says of the first
# attempt. `told_device.py ENROLMENT living|living_aio`, started by tests.
# mypy: ignore-errors
import sys

options = {"keepalive": 60, "timeout": 5}


def told(up, error):
    print("up" if up else "down", type(error).__name__, error)
    raise SystemExit


if sys.argv[2] == "living":
    from sealmq_device import Client  # noqa: TID251 - this file runs in MicroPython
    from sealmq_device.living import Living  # noqa: TID251

    living = Living(Client(sys.argv[1], **options))
    living.on_change = told
    living.run()
else:
    import asyncio

    from sealmq_device.aio import Client  # noqa: TID251
    from sealmq_device.living_aio import Living  # noqa: TID251

    async def main():
        living = Living(Client(sys.argv[1], **options))
        living.on_change = told
        await living.run()

    asyncio.run(main())
