# Run by MicroPython: what a board does that wakes to say one thing, for bench_device.py.
#     -m bench_wake sealmq ENROLMENT | plain PORT | tls PORT CA.der HOSTNAME | nothing
# Imports, connects, publishes with QoS 1, disconnects; then it would sleep. Nothing of what one way
# does not need is imported for it.
import sys

import ffi

TOPIC = "machine/1/temperature"
PAYLOAD = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"


def sealmq(path: str) -> None:
    from sealmq_device import Client

    c = Client(path)
    c.connect()
    c.publish(TOPIC, PAYLOAD, False, 1)
    c.disconnect()


def umqtt(port: int, tls: bool) -> None:
    from umqtt.simple import MQTTClient

    c = MQTTClient(b"wake", "127.0.0.1", port, ssl=tls)
    c.connect()
    c.publish(TOPIC, PAYLOAD, False, 1)
    c.disconnect()


# What umqtt imports to wrap its socket.
class Ussl:
    def __init__(self, ca: str, name: str) -> None:
        import tls

        self._context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
        self._context.verify_mode = tls.CERT_REQUIRED
        with open(ca, "rb") as f:
            self._context.load_verify_locations(f.read())
        self._name = name

    def wrap_socket(self, sock: object) -> object:
        wrapped = self._context.wrap_socket(sock, server_hostname=self._name)
        suite, version = wrapped.cipher()
        print(suite, version, self._context.verify_mode == 2)
        return wrapped


def main(what: str, words: "list[str]") -> None:
    if what == "sealmq":
        sealmq(words[0])
    elif what == "tls":
        sys.modules["ussl"] = Ussl(words[1], words[2])  # type: ignore[assignment]
        umqtt(int(words[0]), True)
    elif what == "plain":
        umqtt(int(words[0]), False)


main(sys.argv[1], sys.argv[2:])
sys.stdout.flush()
ffi.open("libc.so.6").func("v", "_exit", "i")(0)
