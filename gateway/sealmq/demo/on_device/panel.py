# A control panel: reads its machine's temperature topic and moves its machine's arm by it.
# It subscribes as any MQTT client does. Arguments: enrolment file, number of the machine.
import sys

from actor import Actor  # type: ignore[import-not-found]

_TYPING = False
if _TYPING:
    from typing import Any


def first_number(text: str) -> float:
    for word in text.split():
        try:
            return float(word)
        except ValueError:
            pass
    return 0.0


def main(path: str, machine: str) -> None:
    heat = "machine/%s/temperature" % machine
    arm = "machine/%s/arm" % machine

    def read(actor: "Any", topic: str, text: str) -> None:
        if topic == heat:
            value = first_number(text)
            actor.publish(arm + "/angle", "arm angle %d degrees" % (int(value * 10) % 180), 1)
            actor.publish(arm + "/height", "arm height %d mm" % (100 + int(value) % 400), 0)

    Actor(path, (heat,), read=read).run()


main(*sys.argv[1:])
