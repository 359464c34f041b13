# What a person wears: publishes a pulse, which is made up, and reads it back, as its owner may.
# Arguments: enrolment file, topic, milliseconds between two, what it says with its subscription.
import sys
import time

from actor import Actor  # type: ignore[import-not-found]

_TYPING = False
if _TYPING:
    from typing import Any


def main(path: str, topic: str, every_ms: str, said: str) -> None:
    def act(actor: "Any") -> None:
        beats = 60 + int(time.time()) % 30
        actor.publish(topic, "heart rate %d a minute" % beats, 1)

    Actor(path, (topic,), act=act, every_ms=int(every_ms), said=said).run()


main(*sys.argv[1:])
