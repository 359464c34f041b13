# Every key derivation, one line each (SPEC.md 2). Roots enter F and nothing else; ciphers get
# outputs of F.
from hashlib import sha256


# SHA-256(T, site, ctx, K): at most 55 bytes, so one compression, keyed by the 32 bytes at its end.
# parts: T, site, the parts of ctx, K.
def f(*parts: bytes) -> bytes:
    return sha256(b"".join(parts)).digest()


def u24(n: int) -> bytes:
    return n.to_bytes(3, "big")


# u8, u24, u24
def _numbers(a: int, b: int, c: int) -> bytes:
    return ((a << 24 | b) << 24 | c).to_bytes(7, "big")


def xor32(a: bytes, b: bytes) -> bytes:
    return (int.from_bytes(a, "big") ^ int.from_bytes(b, "big")).to_bytes(32, "big")


# The pad of z (h = 0) and of z-bar (h = 1), under the source label's root. Chen and Wilson 4.3,
# with the kid of SPEC.md 2.
def pad(site: bytes, h: int, n: int, e_n: int, kid: bytes, root: bytes) -> bytes:
    return f(b"z1", site, _numbers(h, n, e_n), kid, root)


def topic_key(site: bytes, suite: int, label: int, epoch: int, root: bytes) -> bytes:
    return f(b"e1", site, _numbers(suite, label, epoch), root)


def outer_key(site: bytes, suite: int, label: int, epoch: int, inst: int, ek: bytes) -> bytes:
    return f(b"o1", site, _numbers(suite, label, epoch), u24(inst), ek)


# g: the 32 bytes of this epoch of the grant. Outer key of an m3 with ref 2.
def grant_key(site: bytes, suite: int, grant: int, epoch: int, inst: int, g: bytes) -> bytes:
    return f(b"g1", site, _numbers(suite, grant, epoch), u24(inst), g)


def inner_key(
    site: bytes, suite: int, sender: int, boot: int, salt: bytes, root_bar: bytes
) -> bytes:
    return f(b"i1", site, _numbers(suite, sender, boot), salt, root_bar)


def link_key(
    site: bytes, use: int, suite: int, mediator: int, boot: int, salt: bytes, km: bytes
) -> bytes:
    return f(b"l1", site, _numbers(use << 4 | suite, mediator, boot), salt, km)


# The same for one who needs them for one boot session after the other: all of F's input, with
# places at SESSION_AT for u24 boot ‖ salt, and at USE_AT for use and suite.
USE_AT = 6
SESSION_AT = 10
SESSION_LEN = 11
IN_M1 = 8  # where u24 boot ‖ salt stand in m1's header
NONCE_AT = 7  # of time_input: N_c, 16 bytes; what it has there is that of a first connection
_ROOM = bytes(11)


def link_input(site: bytes, mediator: int, km: bytes) -> bytearray:
    return bytearray(b"l1" + site + b"\0" + u24(mediator) + _ROOM + km)


def inner_input(site: bytes, suite: int, sender: int, root_bar: bytes) -> bytearray:
    return bytearray(b"i1" + site + bytes((suite,)) + u24(sender) + _ROOM + root_bar)


def time_input(site: bytes, suite: int, ps: bytes) -> bytearray:
    return bytearray(b"t1" + site + bytes((16 | suite,)) + bytes(11) + b"\0\0\1\0\0" + ps)


def record_key(site: bytes, suite: int, label: int, epoch: int, root_bar: bytes) -> bytes:
    return f(b"r1", site, bytes((suite,)), u24(label) + u24(epoch), root_bar)


# direction: 0 request, 1 answer. nonce_c: 16 bytes.
def provisioning_key(site: bytes, suite: int, direction: int, nonce_c: bytes, ps: bytes) -> bytes:
    return f(b"p1", site, bytes((direction << 4 | suite,)), nonce_c, ps)


def time_key(site: bytes, suite: int, nonce_c: bytes, ps: bytes) -> bytes:
    return f(b"t1", site, bytes((16 | suite,)), nonce_c, ps)
