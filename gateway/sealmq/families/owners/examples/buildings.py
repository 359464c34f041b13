"""A privacy filter: it receives where people are, and publishes the building alone, as theirs.

    python buildings.py FILTER_ENROLMENT        enrolment of the client that filters

It is a client like any other. It gets the events of those who let it RECEIVE, and publishes events
of type BUILDING that stay the person's: for that each lets it PUBLISH. What it makes of them is the
person's to give on. With `--count` it publishes how many people it has seen in each building
instead, as its own, and owes nobody's PUBLISH.
"""

from __future__ import annotations

import argparse
import asyncio

from sealmq.client import Client
from sealmq_spec.errors import Denied


async def without_rooms(client: Client) -> None:
    """loc/USER/BUILDING/ROOM becomes building/USER/BUILDING."""
    await client.subscribe("loc/+/+/+", qos=1)
    async for message in client.messages():
        _, user, building, _ = message.topic.split("/")
        try:
            await client.publish(f"building/{user}/{building}", b"here", qos=1)
        except Denied:
            # The person has not let us publish: nothing is said about them.
            continue


async def counts(client: Client, every_s: float) -> None:
    """How many different people were seen in each building, as headcount/BUILDING."""
    seen: dict[str, set[str]] = {}
    await client.subscribe("loc/+/+/+", qos=1)

    async def tell() -> None:
        while True:
            await asyncio.sleep(every_s)
            for building, people in sorted(seen.items()):
                # Of few people a number says who they are.
                if len(people) > 2:
                    await client.publish(f"headcount/{building}", str(len(people)), qos=1)
            seen.clear()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(tell(), name="tell")
        async for message in client.messages():
            _, user, building, _ = message.topic.split("/")
            seen.setdefault(building, set()).add(user)


async def main() -> None:
    parser = argparse.ArgumentParser(description="A privacy filter of owners' events.")
    parser.add_argument("enrolment", help="the filter's enrolment file")
    parser.add_argument("--count", type=float, metavar="SECONDS", help="publish counts instead")
    args = parser.parse_args()
    async with Client.from_enrolment(args.enrolment, f"{args.enrolment}.state") as client:
        if args.count:
            await counts(client, args.count)
        else:
            await without_rooms(client)


if __name__ == "__main__":
    asyncio.run(main())
