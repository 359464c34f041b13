# Runs in MicroPython: a client that does what the lines on its standard input say, one answer each.
# Commands are JSON objects on one line; answers too. Started by tests as a real device would be.
# mypy: ignore-errors
import json
import sys
import time

from sealmq_device import Client  # noqa: TID251 - this file runs in MicroPython

client = Client(sys.argv[1])
inbox = []


def got(m):
    inbox.append(
        {
            "topic": m.topic.decode(),
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
        client.connect()
    elif op == "publish":
        client.publish(
            c["topic"], c["payload"].encode(), qos=c.get("qos", 1), retain=c.get("retain", False)
        )
    elif op == "subscribe":
        client.subscribe(c["filter"])
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
