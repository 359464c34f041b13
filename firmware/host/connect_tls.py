# Run by MicroPython: connections of umqtt.simple over TLS 1.3, for counting instructions.
#     connect_tls.py PORT CA.der HOSTNAME connections,publishes
# Each connection verifies the server's chain and publishes once with QoS 1. The process ends as in
# connect_sealmq.py.
import gc
import sys

import ffi
import tls
from umqtt.simple import MQTTClient

TOPIC = b"machine/1/temperature"
PAYLOAD = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"


# umqtt asks a module of this name, which ports without Python's `ssl` lack.
class Ussl:
    def __init__(self, ca: bytes, name: str) -> None:
        self._context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
        self._context.verify_mode = tls.CERT_REQUIRED
        self._context.load_verify_locations(ca)
        self._name = name
        self.used = ("", "")

    def wrap_socket(self, sock: object) -> object:
        wrapped = self._context.wrap_socket(sock, server_hostname=self._name)
        self.used = wrapped.cipher()
        return wrapped


_exit = ffi.open("libc.so.6").func("v", "_exit", "i")


def _connected(port: int) -> MQTTClient:
    c = MQTTClient(b"tls", "127.0.0.1", port, ssl=True)
    c.connect()
    c.publish(TOPIC, PAYLOAD, False, 1)
    return c


def main(port: int, ca: str, name: str, connections: int, publishes: int) -> None:
    gc.disable()
    with open(ca, "rb") as f:
        ussl = Ussl(f.read(), name)
    sys.modules["ussl"] = ussl  # type: ignore[assignment]
    for _ in range(connections):
        _connected(port)
    c = _connected(port)
    for _ in range(publishes):
        c.publish(TOPIC, PAYLOAD)
    print(ussl.used[0], ussl.used[1])


connections, publishes = [int(number) for number in sys.argv[4].split(",")]
main(int(sys.argv[1]), sys.argv[2], sys.argv[3], connections, publishes)
sys.stdout.flush()
_exit(0)
