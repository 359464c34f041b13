# Run by MicroPython: as bench_wake_sealmq.py, with umqtt.simple over the interpreter's TLS.
#     -m bench_wake_tls PORT CA.der HOSTNAME
# Prints what was negotiated, as bench_umqtt.py does.
import sys

import ffi
import tls
from umqtt.simple import MQTTClient


# What umqtt imports to wrap its socket.
class Ussl:
    def wrap_socket(self, sock: object) -> object:
        context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
        context.verify_mode = tls.CERT_REQUIRED
        with open(sys.argv[2], "rb") as f:
            context.load_verify_locations(f.read())
        wrapped = context.wrap_socket(sock, server_hostname=sys.argv[3])
        suite, version = wrapped.cipher()
        print(suite, version, context.verify_mode == tls.CERT_REQUIRED)
        return wrapped


sys.modules["ussl"] = Ussl()  # type: ignore[assignment]
c = MQTTClient(b"wake", "127.0.0.1", int(sys.argv[1]), ssl=True)
c.connect()
c.publish(
    b"machine/1/temperature",
    b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    False,
    1,
)
c.disconnect()
sys.stdout.flush()
ffi.open("libc.so.6").func("v", "_exit", "i")(0)
