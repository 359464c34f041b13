# A sensor: publishes a reading of the machine that it runs on. Arguments: enrolment file, topic,
# QoS, which reading, milliseconds between two.
import os
import sys

from actor import Actor  # type: ignore[import-not-found]

_TYPING = False
if _TYPING:
    from typing import Any

_ZONES = "/sys/class/thermal"


def first_line(path: str) -> str:
    with open(path) as f:
        return f.readline().strip()


def load() -> str:
    return "load " + " ".join(first_line("/proc/loadavg").split()[:3])


def memory() -> str:
    with open("/proc/meminfo") as f:
        for line in f:
            if line.startswith("MemAvailable:"):
                return "memory available %s kB" % line.split()[1]
    return "memory unknown, no MemAvailable"


# The first thermal zone that answers; a machine without one gives its load instead.
def heat() -> str:
    try:
        zones = sorted(os.listdir(_ZONES))
    except OSError:
        zones = []
    for zone in zones:
        try:
            milli = int(first_line("%s/%s/temp" % (_ZONES, zone)))
        except (OSError, ValueError):
            continue
        return "temperature %.1f C" % (milli / 1000)
    return load()


READINGS = {"load": load, "memory": memory, "heat": heat}


def main(path: str, topic: str, qos: str, reading: str, every_ms: str) -> None:
    measure = READINGS[reading]

    def act(actor: "Any") -> None:
        actor.publish(topic, measure(), int(qos))

    Actor(path, act=act, every_ms=int(every_ms)).run()


main(*sys.argv[1:])
