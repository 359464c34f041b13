"""Cases of sections 4 and 7.3 as a client's session lives them: what it sends, what it believes, what time it has."""

from __future__ import annotations

from .case import Cases, Json, client_json
from .cases_envelopes import NAMES, PLAIN, T, TOPIC
from .control import down, kg_time, proof_head, sign_connect, token, up, welcome
from .envelopes import CLEAR, RETAINED, WILL, m1, m2
from .model import Client, Order, client, rnd, tlv, u

MS = T * 1000 + 400
N_C = rnd("session N_c", 16)
KG = Order(2, MS, 7)


def order(seq: int, ms: int = MS) -> Order:
    """The mediator's numbers."""
    return Order(9, ms, seq)


def begin(c: Client, conn: int = 1, low: int = 1, want: bool = False, ask_low: int = 0) -> Json:
    """The step that makes the first part of the password."""
    head = proof_head(c, conn, low, int(want))
    return {"do": "begin", "want_kg_time": want, "low": ask_low, "out": {"head": head.hex()}}


def sign(c: Client, conn: int = 1, low: int = 1, want: bool = False, mono: int = 1000) -> Json:
    """The step that signs a CONNECT; what stands in front of the password does not matter here."""
    x = b"\x10\x7fin front of it" + proof_head(c, conn, low, int(want))
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


def _out(t: Talk) -> None:
    for suite, name in NAMES.items():
        c = client(suite)
        one = publish(c, 1, 2500, T + 1)
        t.tell(f"{name}-publish", "3, 4", "connect, welcome, publish", c, *ready(c), one)
    c = client(1, 2)
    steps = ready(c)
    t.tell(
        "publish-mixed",
        "3, 4",
        "label of suite 2, link of suite 1",
        c,
        *steps,
        publish(c, 1, 2500, T + 1),
    )
    c = client()
    steps = [
        *ready(c),
        publish(c, 1, 1500, T, 1, RETAINED, 255),
        publish(c, 2, 60000, T + 58, 2, 0, 10),
    ]
    t.tell("publish-two", "3, 5", "two publishes: ctr rises", c, *steps)
    steps = [*ready(c), publish(c, 1, 1500, T, 1, CLEAR, 0, b"")]
    t.tell("publish-clear", "6.1", "a sealed clear", c, *steps)
    steps = [*ready(c), publish(c, 1, 1500, T, block=tlv((40, b"x")))]
    t.tell("publish-tlv", "3.4", "with a TLV block", c, *steps)
    will = publish(c, 1, 0, 0, 3, WILL, 255)
    t.tell("will", "4.1", "a will needs no time; low is behind it", c, will, *connect(c, 1, 2))
    step = {**publish(c, 1, 1500, T), "refuse": "misuse"}
    del step["out"]
    t.tell("publish-no-time", "4.4", "a publish before the welcome", c, *connect(c), step)
    filt = b"$share/g/machine/+/temperature"
    steps = [*ready(c), ask_token(c, 1, filt, 1, 0), ask_token(c, 2, filt, 0, 1)]
    t.tell("tokens", "4.2", "SUBSCRIBE, then UNSUBSCRIBE", c, *steps)
    body = u(0x81, 1) + u(3, 1) + b"toy" + b"count"
    step = {"do": "up", "body": body.hex(), "mono": 2500}
    last = {**step, "out": {"packet": up(c, 1, T + 1, body).hex()}}
    t.tell("command", "4.4", "a family's command", c, *ready(c), last)
    last = {**step, "refuse": "misuse"}
    t.tell("command-no-time", "4.4", "a command before the welcome", c, *connect(c), last)
    fetch = {"do": "fetch", "label": 17, "mono": 2500}
    last = {**fetch, "out": {"packet": up(c, 1, T + 1, b"\x83" + u(17, 3)).hex()}}
    t.tell("fetch", "4.4", "records asked for", c, *ready(c), last)
    zero = c.but(gen=0)
    head = {"head": proof_head(zero, 0, 0).hex()}
    step = {"do": "begin", "want_kg_time": True, "low": 0, "out": head}
    t.tell("quarantine", "4.1", "before provisioning", zero, step)
    second = [begin(c, 2, 2), sign(c, 2, 2, mono=90000)]
    t.tell(
        "reconnect", "4.1", "conn rises, ctr goes on", c, *ready(c), publish(c, 1, 1500, T), *second
    )
    steps = [*ready(c), publish(c, 1, 1500, T, 2), begin(c, 2, 1, ask_low=1)]
    t.tell("reconnect-low", "4.1", "a PUBLISH is still to be sent again", c, *steps)


def _in(t: Talk) -> None:
    c = client()
    first = down(c, order(5), 1, welcome(MS))
    taken = hear(first, 1, 0, flip=True)
    t.tell("welcome", "4.4", "a welcome", c, *connect(c), taken)
    receipt = b"\x02" + u(3, 3) + u(0b101, 8)
    says = [3, u(0b101, 8).hex()]
    t.tell("repeat", "4.4", "the same packet twice", c, *connect(c), taken, refuse(first, "replay"))
    lower = down(c, order(4), 1, receipt)
    t.tell("order-lower", "4.4", "a lower seq", c, *connect(c), taken, refuse(lower, "replay"))
    earlier = down(c, order(9, MS - 1), 1, receipt)
    t.tell(
        "order-ms",
        "4.4",
        "a lower ms, a higher seq",
        c,
        *connect(c),
        taken,
        refuse(earlier, "replay"),
    )
    inst = down(c, Order(8, MS + 1, 0), 1, receipt)
    t.tell("order-inst", "4.4", "a lower inst", c, *connect(c), taken, refuse(inst, "replay"))
    higher = hear(down(c, order(6), 1, receipt), 2, says, flip=True)
    t.tell("receipt", "4.4", "a receipt", c, *connect(c), taken, higher)
    for ctr, yes in ((3, True), (2, False), (1, True), (4, False)):
        step = {"do": "receipted", "ctr": ctr, "out": {"yes": yes}}
        t.tell(
            f"receipted-{ctr}",
            "4.4",
            f"ctr {ctr} by that receipt",
            c,
            *connect(c),
            taken,
            higher,
            step,
        )
    again = connect(c, 2, 1, mono=9000)
    old = refuse(down(c, order(6), 1, receipt), "unauthentic", 9500)
    t.tell(
        "other-conn", "4.4", "a packet of the connection before", c, *connect(c), taken, *again, old
    )
    lower_ok = hear(down(c, order(1), 2, welcome(MS + 8000)), 1, 0, 9500)
    t.tell(
        "order-new-conn",
        "4.4",
        "order begins anew with a connection",
        c,
        *connect(c),
        taken,
        *again,
        lower_ok,
    )
    text = b"labels.rp" + b"the topic has another label"
    notice = u(3, 1) + u(1, 1) + u(20, 3) + u(5, 1) + u(9, 1) + text
    says2 = [1, 20, 5, "labels.rp", "the topic has another label"]
    t.tell("notice", "4.4", "a notice", c, *ready(c), hear(down(c, order(6), 1, notice), 3, says2))
    wrong = down(c, order(6), 1, notice[:9])
    t.tell("notice-cut", "4.4", "a notice that is cut", c, *ready(c), refuse(wrong, "malformed"))
    unknown = down(c, order(6), 1, b"\x70abc")
    t.tell("unknown-op", "4.4", "an op that nobody knows", c, *ready(c), hear(unknown, 0x70, None))
    rec = rnd("stands for a record", 130)
    last = hear(down(c, order(6), 1, b"\x05" + rec), 5, rec.hex())
    t.tell("record", "4.4", "a record is handed on", c, *ready(c), last)

    def epoch(label: int, number: int) -> tuple[bytes, list[int]]:
        return b"\x04" + u(label, 3) + u(number, 3) + u(91, 4) + u(T + 600, 4), [
            label,
            number,
            91,
            T + 600,
        ]

    state: Json = {
        "boot_floor": 41,
        "top": 0,
        "mask": "00" * 8,
        "epoch": 6,
        "kseq": 91,
        "outdated": True,
    }
    for name, label, number, after in (
        ("own", 16, 6, state),
        ("other", 17, 9, {**state, "epoch": 5, "kseq": 90, "outdated": False}),
    ):
        body, says3 = epoch(label, number)
        steps = [
            *ready(c),
            hear(down(c, order(6), 1, body), 4, says3),
            {"do": "state", "out": after},
        ]
        t.tell(f"epoch-{name}", "4.4", f"a new epoch of label {label}", c, *steps)
    body = epoch(16, 6)[0][:-1]
    t.tell(
        "epoch-cut",
        "4.4",
        "op 4 that is cut",
        c,
        *ready(c),
        refuse(down(c, order(6), 1, body), "malformed"),
    )


def _welcomes(t: Talk) -> None:
    c = client()
    behind = down(c, order(0), 1, welcome(MS, 1, 77, 3, 0b111))
    state: Json = {"boot_floor": 77, "top": 3, "mask": u(7, 8).hex(), "epoch": 5, "kseq": 90}
    state["outdated"] = False
    steps = [*connect(c), hear(behind, 1, 1)]
    t.tell(
        "behind",
        "4.1",
        "the mediator has seen a higher boot",
        c,
        *steps,
        {"do": "state", "out": state},
    )
    t.tell("behind-time", "4.1", "a welcome with status 1 sets no clock", c, *steps, clock(None))
    newer = down(c, order(0), 1, welcome(MS, epoch=6, kseq=91))
    state = {"boot_floor": 41, "top": 0, "mask": "00" * 8, "epoch": 6, "kseq": 91, "outdated": True}
    steps = [*connect(c), hear(newer, 1, 0), {"do": "state", "out": state}]
    t.tell("outdated", "4.4", "the label has a newer epoch", c, *steps)
    nothing: Json = {"boot_floor": 0, "top": 0, "mask": "00" * 8, "epoch": 0, "kseq": 0}
    nothing["outdated"] = False
    for name, what, body, why in (
        ("status-2", "a status that nobody knows", welcome(MS, 2, 99, 9, 1, 9), "malformed"),
        (
            "critical",
            "unknown critical type",
            welcome(MS, 0, 99, 9, 1, 9, block=tlv((0x90, b""))),
            "unsupported",
        ),
        (
            "behind-critical",
            "the same with status 1",
            welcome(MS, 1, 99, block=tlv((0x90, b""))),
            "unsupported",
        ),
        ("longer", "a byte behind the TLV block", welcome(MS, 0, 99) + b"\x00", "malformed"),
        (
            "kg-time-forged",
            "KG time of 43 zeros",
            welcome(MS, 0, 99, 9, 1, 9, block=tlv((1, bytes(43)))),
            "malformed",
        ),
    ):
        steps = [*connect(c), refuse(down(c, order(0), 1, body), why)]
        t.tell(f"welcome-{name}", "4.4", what, c, *steps)
        steps = [*steps, {"do": "state", "out": nothing}, clock(None)]
        t.tell(f"welcome-{name}-trace", "1", what + ": nothing is remembered", c, *steps)


def _clocks(t: Talk) -> None:
    c = client()
    n_c = c.salt + u(c.boot, 3) + u(1, 3) + b"\x00\x00"

    def kg(ms: int, nonce: bytes = n_c, kseq: int = 90, epoch: int = 5, kind: int = 1) -> bytes:
        return tlv((kind, kg_time(c, nonce, KG, ms, epoch, kseq)))

    def tell(name: str, what: str, *steps: Json, stored: int = 90) -> None:
        t.tell("time-" + name, "7.3", what, c, *steps, kseq=stored)

    def asked(body: bytes, seq: int = 9, mono: int = 5500) -> Json:
        ms = int.from_bytes(body[17:23], "big")
        return hear(down(c, order(seq), 1, body), 6, ms, mono, seq == 9)

    want = connect(c, want=True)
    tell("mediator", "the mediator's time", *ready(c), clock(MS + 700, 2200))
    late = hear(down(c, order(0), 1, welcome(MS)), 1, 0, 3001)
    tell("late", "an answer after 2.001 s sets no clock", *connect(c), late, clock(None, 3001))
    edge = hear(down(c, order(0), 1, welcome(MS)), 1, 0, 3000)
    tell("edge", "an answer after 2.000 s does", *connect(c), edge, clock(MS, 3000))
    both = hear(down(c, order(0), 1, welcome(MS, block=kg(MS + 90))), 1, 0, flip=True)
    tell("kg", "KG time in the welcome", *want, both, clock(MS + 90, kg=True))
    crit = hear(down(c, order(0), 1, welcome(MS, block=kg(MS + 90, kind=0x81))), 1, 0)
    tell("kg-critical", "KG time as a critical item", *want, crit, clock(MS + 90, kg=True))
    wide = hear(down(c, order(0), 1, welcome(MS, block=kg(MS + 30000))), 1, 0)
    tell("kg-near", "30.000 s apart", *want, wide, clock(MS + 30000, kg=True))
    wide = hear(down(c, order(0), 1, welcome(MS, block=kg(MS + 30001))), 1, 0)
    tell(
        "kg-far", "30.001 s apart: reported", *want, wide, clock(MS + 30001, kg=True, conflict=True)
    )
    other = down(c, order(0), 1, welcome(MS, block=kg(MS, n_c[:-3] + b"\x02\x00\x00")))
    tell("kg-other-conn", "KG time of another connection", *want, refuse(other, "unauthentic"))
    old = down(c, order(0), 1, welcome(MS, block=kg(MS, kseq=89)))
    tell("kg-kseq", "KG time with a kseq below the stored one", *want, refuse(old, "stale"))
    state: Json = {
        "boot_floor": 41,
        "top": 0,
        "mask": "00" * 8,
        "epoch": 7,
        "kseq": 95,
        "outdated": True,
    }
    fresh = hear(down(c, order(0), 1, welcome(MS, block=kg(MS, kseq=95, epoch=7))), 1, 0)
    tell("kg-epoch", "KG time tells of a newer epoch", *want, fresh, {"do": "state", "out": state})
    query = ask_time(c, 1)
    answer = time_body(MS + 4000, kg(MS + 4100, N_C))
    tell(
        "asked", "KG time asked for", *ready(c), query, asked(answer), clock(MS + 4100, 5500, True)
    )
    plain = time_body(MS + 4100)
    tell(
        "asked-plain",
        "the mediator's time asked for",
        *ready(c),
        query,
        asked(plain),
        clock(MS + 4100, 5500),
    )
    slow = time_body(MS + 900)
    tell("backwards", "never backwards", *ready(c), query, asked(slow), clock(MS + 4000, 5500))
    again = refuse(down(c, order(10), 1, plain), "stale", 5600)
    tell("twice", "a second answer", *ready(c), query, asked(plain), again)
    never = refuse(down(c, order(9), 1, plain), "stale", 5500)
    tell("unasked", "an answer to no question", *ready(c), never)
    wrong = refuse(down(c, order(9), 1, time_body(MS, n_c=rnd("other", 16))), "stale", 5500)
    tell("other-question", "an answer to another question", *ready(c), query, wrong)
    cut = refuse(down(c, order(9), 1, plain[:-1]), "malformed", 5500)
    tell("cut", "op 6 that is cut", *ready(c), query, cut)
    far = ready(c, MS + 864000000)
    query = ask_time(c, 1, s1=T + 864003)
    steps = (*far, query, asked(answer), clock(MS + 864004000, 5500, False, True))
    tell("mediator-lied", "ten days ahead of KG time: reported, and no KG time", *steps)
    kept = hear(down(c, order(0), 1, welcome(MS, block=kg(MS))), 1, 0)
    query = ask_time(c, 1)
    jump = time_body(MS + 29000)
    steps = (*want, kept, query, asked(jump), clock(MS + 4000, 5500, True))
    tell("mediator-ignored", "a mediator does not move KG time", *steps)
    jump = time_body(MS + 35000)
    steps = (*want, kept, query, asked(jump), clock(MS + 4000, 5500, True, True))
    tell("mediator-far", "31 s off KG time: reported", *steps)


def add(cases: Cases) -> None:
    """All cases of this file."""
    talk = Talk(cases)
    for group in (_out, _in, _welcomes, _clocks):
        group(talk)
