"""What session cases are made of: connecting, sending, hearing, reading the clock."""

from __future__ import annotations

from .case import Cases, Json, client_json
from .cases_envelopes import PLAIN, TOPIC, T
from .control import down, proof_head, sign_connect, token, up, welcome
from .envelopes import m1, m2
from .model import Client, Order, rnd, u

MS = T * 1000 + 400
N_C = rnd("session N_c", 16)
KG = Order(2, MS, 7)


def order(seq: int, ms: int = MS) -> Order:
    """The mediator's numbers."""
    return Order(9, ms, seq)


def _flags(conn: int, want: bool) -> int:
    # Bit 1 is always set: every token is sealed anew. Bit 0 is for the first connection alone.
    return 2 + (want and conn == 1)


def begin(c: Client, conn: int = 1, low: int = 1, want: bool = False, ask_low: int = 0) -> Json:
    """The step that makes the first part of the password."""
    head = proof_head(c, conn, low, _flags(conn, want))
    return {"do": "begin", "want_kg_time": want, "low": ask_low, "out": {"head": head.hex()}}


def sign(c: Client, conn: int = 1, low: int = 1, want: bool = False, mono: int = 1000) -> Json:
    """The step that signs a CONNECT; what stands in front of the password does not matter here."""
    x = b"\x10\x7fin front of it" + proof_head(c, conn, low, _flags(conn, want))
    out = {"packet": sign_connect(c, conn, x).hex()}
    return {"do": "sign", "unsigned": x.hex(), "mono": mono, "out": out}


def connect(
    c: Client, conn: int = 1, low: int = 1, want: bool = False, mono: int = 1000
) -> list[Json]:
    """Both of them."""
    return [begin(c, conn, low, want), sign(c, conn, low, want, mono)]


def hear(packet: bytes, op: int, says: object, mono: int = 1500, flip: bool = False) -> Json:
    """A control packet that is taken."""
    step: Json = {"do": "down", "packet": packet.hex(), "mono": mono}
    return {**step, "out": {"op": op, "says": says}, **({"flip": ["packet"]} if flip else {})}


def refuse(packet: bytes, why: str, mono: int = 1500) -> Json:
    """A control packet that is refused."""
    return {"do": "down", "packet": packet.hex(), "mono": mono, "refuse": why}


def clock(now_ms: int | None, mono: int = 1500, kg: bool = False, conflict: bool = False) -> Json:
    """What time the session has at `mono`."""
    out = {"now_ms": now_ms, "kg_time": kg, "conflict": conflict}
    return {"do": "clock", "mono": mono, "out": out}


def turn(c: Client, kseq: int) -> Json:
    """An answer in the session has brought this state."""
    return {"do": "turn", "client": client_json(c, kseq=kseq), "out": {}}


class Talk:
    """Writes session cases."""

    def __init__(self, cases: Cases) -> None:
        self.cases = cases

    def tell(
        self, name: str, section: str, what: str, c: Client, *steps: Json, kseq: int = 90
    ) -> None:
        """One case."""
        given = {"client": client_json(c, kseq=kseq), "boot": c.boot, "salt": c.salt.hex()}
        self.cases.script(f"session-{name}", section, what, "session", given, list(steps))


def ready(c: Client, ms: int = MS, seq: int = 0) -> list[Json]:
    """Connected, with a mediator's time: from mono 1500 on it is `ms`."""
    return [*connect(c), hear(down(c, order(seq), 1, welcome(ms)), 1, 0)]


def publish(
    c: Client,
    ctr: int,
    mono: int,
    t_pub: int,
    flags: int = 0,
    kind: int = 0,
    life: int = 0,
    plain: bytes = PLAIN,
    block: bytes = b"\x00",
) -> Json:
    """A PUBLISH's payload."""
    inner = m1(c, TOPIC, plain, ctr, t_pub, kind, life)
    packet = m2(c, TOPIC, inner, ctr, t_pub, flags, block)
    step: Json = {
        "do": "publish",
        "topic": TOPIC.hex(),
        "flags": flags,
        "class": kind,
        "life": life,
    }
    step |= {"mono": mono, "plain": plain.hex(), "tlv": block.hex()}
    return {**step, "out": {"packet": packet.hex()}}


def ask_token(c: Client, ctr: int, filt: bytes, qos: int, op: int) -> Json:
    """A filter with its token."""
    step: Json = {"do": "token", "filter": filt.hex(), "qos": qos, "op": op}
    return {**step, "out": {"text": token(c, ctr, filt, qos, op).hex(), "ctr": ctr}}


def ask_time(c: Client, ctr: int, n_c: bytes = N_C, mono: int = 5000, s1: int = T + 3) -> Json:
    """Op 0x82."""
    out = {"packet": up(c, ctr, s1, b"\x82" + n_c).hex()}
    return {"do": "ask-time", "n_c": n_c.hex(), "mono": mono, "out": out}


def time_body(ms: int, block: bytes = b"\x00", n_c: bytes = N_C) -> bytes:
    """Body of op 6."""
    return b"\x06" + n_c + u(ms, 6) + block
