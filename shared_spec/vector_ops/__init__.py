# What the operations named in test vectors do with sealmq_spec, on CPython and on MicroPython. An
# operation takes make(suite, key) and a case's inputs; it gives outputs or raises a SealError.
from binascii import hexlify

from sealmq_spec.errors import Malformed, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMES = {
    "Malformed": "malformed",
    "Unauthentic": "unauthentic",
    "Stale": "stale",
    "Replay": "replay",
    "Denied": "denied",
    "WrongEpoch": "epoch",
    "Unavailable": "unavailable",
    "TooLarge": "too-large",
    "RateLimited": "rate",
    "Unsupported": "unsupported",
    "NoKey": "no-key",
    "Misuse": "misuse",
}


# The code under test gave something else than the vector says.
class Wrong(Exception):
    pass


# The class of a refusal as SPEC.md 11 calls it.
def class_of(error: Exception) -> str:
    return NAMES.get(type(error).__name__, type(error).__name__)


def raw(text: str) -> bytes:
    return bytes.fromhex(text)


# MicroPython 1.25's b"".hex() gives b"", so not that.
def hexed(data: "bytes | bytearray") -> str:
    return hexlify(bytes(data)).decode()


# Text of bytes that came off the wire.
def text_of(data: bytes) -> str:
    try:
        return data.decode()
    except ValueError:
        raise Malformed("no UTF-8") from None


# Sealing what has been opened must give the vector's bytes again.
def same(what: str, got: "bytes | bytearray", wanted: "bytes | bytearray") -> None:
    if bytes(got) != bytes(wanted):
        raise Wrong(f"{what}: made {hexed(got)}, the vector has {hexed(wanted)}")


def expect_suite(got: int, wanted: int) -> None:
    if got != wanted:
        raise Unsupported(f"suite {got}, {wanted} expected")


# Roots of a case: label, epoch, suite, r, r_bar.
def roots_of(d: "dict[str, Any]") -> "Any":
    from sealmq_spec.records import Roots

    return Roots(d["label"], d["epoch"], d["suite"], raw(d["r"]), raw(d["r_bar"]))


# The identity of a case's client.
def ident_of(d: "dict[str, Any]") -> "Any":
    from sealmq_spec.identity import Identity

    ident = Identity(raw(d["site"]), d["client"], d["mediator"], raw(d["ps"]), "vector", d["suite"])
    ident.gen = d["gen"]
    ident.kseq = d["kseq"]
    if d["gen"]:
        ident.km = raw(d["km"])
        ident.own = roots_of(d["own"])
    return ident
