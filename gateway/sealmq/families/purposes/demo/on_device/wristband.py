# What a worker wears: publishes a pulse, which is made up, and says what it may be used for.
# Arguments: enrolment file, topic, milliseconds between two, the purposes at first.
import sys
import time

from actor import Actor  # type: ignore[import-not-found]
from consent import reserve  # type: ignore[import-not-found]

_TYPING = False
if _TYPING:
    from typing import Any


def main(path: str, topic: str, every_ms: str, *purposes: str) -> None:
    def begin(actor: "Any") -> None:
        reserve(actor, topic, list(purposes))

    def act(actor: "Any") -> None:
        beats = 60 + int(time.time()) % 30
        actor.publish(topic, "pulse %d beats a minute" % beats, 1)

    Actor(path, act=act, every_ms=int(every_ms), begin=begin).run()


main(*sys.argv[1:])
