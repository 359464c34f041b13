# Runs in MicroPython: a client that does what the lines on its standard input say, one answer each.
# Commands are JSON objects on one line; answers too. Started by tests as a real device would be.
# mypy: ignore-errors
import json
import sys
import time
from binascii import hexlify
from hashlib import sha256

from sealmq_device import Client, aead  # noqa: TID251 - this file runs in MicroPython


# Keeps, a line each, a digest of key and nonce and one of what was sealed; neither tells a key.
class Recording:
    def __init__(self, suite, key):
        self._key = sha256(bytes(key)).digest()
        self._aead = aead.make(suite, key)
        self.open_into = self._aead.open_into

    def seal_into(self, nonce, aad, buf, start, n):
        aad, nonce = bytes(aad), bytes(nonce)
        self._aead.seal_into(nonce, aad, buf, start, n)
        sealed = bytes(buf[start : start + n + 16])
        line = hexlify(sha256(self._key + nonce).digest())
        line += b" " + hexlify(sha256(sealed + aad).digest()) + b"\n"
        record.write(line)
        record.flush()


if len(sys.argv) > 2:
    record = open(sys.argv[2], "ab")
    client = Client(sys.argv[1], Recording)
else:
    client = Client(sys.argv[1])
inbox = []


def got(m):
    inbox.append(
        {
            "topic": m.topic,
            "payload": m.payload.decode(),
            "label": m.label,
            "sender": m.sender,
            "age": m.age,
            "how": m.how,
        }
    )


client.set_callback(got)


def receive(count, seconds):
    end = time.time() + seconds
    while len(inbox) < count and time.time() < end:
        client.check_msg()
        time.sleep(0.02)
    taken = list(inbox)
    inbox[:] = []
    return {"messages": taken, "refused": client.refused}


def do(c):
    op = c["op"]
    if op == "connect":
        client.connect(c.get("clean", True))
        return {"client_id": client.client_id.decode()}
    elif op == "publish":
        client.publish(
            c["topic"], c["payload"].encode(), qos=c.get("qos", 1), retain=c.get("retain", False)
        )
    elif op == "send":
        # A publish of which the test wants to know more than that it went well.
        ctr = client.publish(c["topic"], c["payload"].encode(), qos=c.get("qos", 1))
        return {"ctr": ctr}
    elif op == "ask":
        client.ping()
        end = time.time() + c.get("seconds", 0)
        while time.time() < end and not client.receipted(c["ctr"]):
            client.check_msg()
            time.sleep(0.02)
        return {"receipted": client.receipted(c["ctr"])}
    elif op == "resend":
        client.resend()
    elif op == "clock":
        return {
            "now_ms": client.now_ms(),
            "has_kg_time": client.has_kg_time(),
            "conflict": client.session.clock_conflict,
        }
    elif op == "subscribe":
        client.subscribe(c["filter"], c.get("qos", 0), c.get("purpose"))
    elif op == "unsubscribe":
        client.unsubscribe(c["filter"], c.get("purpose"))
    elif op == "reserve":
        client.reserve(c["filter"], c.get("aip", ()), c.get("pip", ()))
    elif op == "release":
        client.release(c["filter"])
    elif op == "presubscribe":
        client.presubscribe(c["client"], c["filter"], c["purpose"])
    elif op == "receive":
        return receive(c["count"], c.get("seconds", 15))
    elif op == "disconnect":
        client.disconnect()
    else:
        return {"error": "no such op"}
    return {}


for line in sys.stdin:
    try:
        answer = do(json.loads(line))
    except Exception as e:
        answer = {"error": type(e).__name__, "text": str(e)}
    print(json.dumps(answer))
