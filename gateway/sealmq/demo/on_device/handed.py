# An attacker with a client's stolen identity is handed packets and public records from the broker's
# side, and a clock that is right. No network. Arguments: enrolment file (its .state beside it), and
# a file with {"now_ms": n, "packets": [[topic, hex], …], "records": [hex, …]}, derivation records.
import json
import sys

from actor import say  # type: ignore[import-not-found]

from sealmq_device import Client
from sealmq_spec.errors import SealError
from sealmq_spec.reader import Reader
from sealmq_spec.records import get_record


# Adds the label that the record opens to `labels`. False: it is not for us.
def adds(reader: Reader, record: bytes, labels: "set[int]") -> bool:
    try:
        reader.add_record(record)
    except SealError:
        return False
    labels.add(get_record(record)[2])
    return True


def main(path: str, handed: str) -> None:
    client = Client(path)
    if client.ident.own is None:
        raise SystemExit("no provisioned identity beside " + path)
    reader = Reader(client.ident, client.make)
    with open(handed) as f:
        given = json.load(f)
    # A record that opens one label may need another first: as often as something new came.
    waiting = [bytes.fromhex(r) for r in given["records"]]
    labels = set()  # type: set[int]
    before = -1
    while len(waiting) != before:
        before = len(waiting)
        waiting = [r for r in waiting if not adds(reader, r, labels)]
    say("records", labels=sorted(labels), refused=len(waiting))
    for topic, packet in given["packets"]:
        try:
            m = reader.open(topic.encode(), bytearray(bytes.fromhex(packet)), given["now_ms"])
            say("opened", topic=topic, text=m.payload.decode())
        except SealError as e:
            say("not-taken", topic=topic, why=str(e), **{"class": type(e).__name__})


main(*sys.argv[1:])
