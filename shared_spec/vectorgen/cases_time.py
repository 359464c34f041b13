"""Cases of section 7.3 and of the welcome: what time a session has, and what it reports."""

from __future__ import annotations

from .case import Cases, Json
from .cases_envelopes import T
from .control import down, kg_time, welcome
from .model import client, rnd, tlv, u
from .session_steps import (
    KG,
    MS,
    N_C,
    Talk,
    ask_time,
    clock,
    connect,
    hear,
    order,
    ready,
    refuse,
    time_body,
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
        steps = [*connect(c, want=True), refuse(down(c, order(0), 1, body), why)]
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
    later_on = connect(c, 2, mono=9000)
    behind = 33000  # W/2 and the three seconds that the answer takes
    near = hear(down(c, order(0), 2, welcome(MS + 10500 + behind)), 1, 0, 12000)
    what = "a late answer that may be right sets no clock and says nothing"
    tell("late-near", what, *ready(c), *later_on, near, clock(MS + 10500, 12000))
    wrong_by_now = hear(down(c, order(0), 2, welcome(MS + 10501 + behind)), 1, 0, 12000)
    what = "a late one that cannot be right is reported"
    tell(
        "late-far",
        what,
        *ready(c),
        *later_on,
        wrong_by_now,
        clock(MS + 10500, 12000, conflict=True),
    )
    for name, back, conflict in (("near", 30000, False), ("far", 30001, True)):
        set_back = hear(down(c, order(0), 2, welcome(MS + 9000 - back)), 1, 0, 10500)
        what = f"a mediator's clock {back} ms behind ours" + (": reported" if conflict else "")
        now = clock(MS + 9000, 10500, conflict=conflict)
        tell("set-back-" + name, what, *ready(c), *later_on, set_back, now)
    edge = hear(down(c, order(0), 1, welcome(MS)), 1, 0, 3000)
    tell("edge", "an answer after 2.000 s does", *connect(c), edge, clock(MS, 3000))
    last = 4_000_000_000_000
    edge = hear(down(c, order(0), 1, welcome(last)), 1, 0)
    tell("last", "the last time that there is", *connect(c), edge, clock(last))
    beyond = refuse(down(c, order(0), 1, welcome(last + 1)), "malformed")
    tell("beyond", "a time that no message can carry", *connect(c), beyond, clock(None))
    beyond = refuse(down(c, order(0), 1, welcome(MS, block=kg(last + 1))), "malformed")
    tell("kg-beyond", "KG time that no message can carry", *want, beyond, clock(None))
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
    unasked = refuse(down(c, order(0), 1, welcome(MS, block=kg(MS))), "stale")
    tell("kg-unasked", "KG time that nobody asked for", *connect(c), unasked)
    zeros = refuse(down(c, order(0), 1, welcome(MS, block=kg(MS, bytes(16)))), "stale")
    what = "KG time for an N_c of zeros that nobody asked for"
    t.tell("welcome-kg-time-unasked-zeros", "7.3", what, c, *connect(c), zeros)
    never = refuse(down(c, order(9), 1, time_body(MS, kg(MS, bytes(16)), bytes(16))), "stale", 5500)
    tell("unasked-zeros", "the same with op 6", *ready(c), never)
    other = down(c, order(0), 1, welcome(MS, block=kg(MS, n_c[:-3] + b"\x02\x00\x00")))
    tell("kg-other-conn", "KG time of another connection", *want, refuse(other, "unauthentic"))
    second = n_c[:-3] + b"\x02\x00\x00"
    later = down(c, order(0), 2, welcome(MS + 9000, block=kg(MS + 9000, second)))
    steps = (*ready(c), *connect(c, 2, want=True, mono=10000), refuse(later, "stale", 10500))
    tell("kg-later-conn", "KG time that comes with a later welcome", *steps)
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
    late = {**fresh, "mono": 3001}
    what = "also when it is too late to set the clock"
    tell("kg-epoch-late", what, *want, late, {"do": "state", "out": state}, clock(None, 3001))
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
    _welcomes(talk)
    _clocks(talk)
