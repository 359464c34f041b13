"""Cases of sections 3 to 5 as a client's session lives them: what it sends and what it believes."""

from __future__ import annotations

from .case import Cases, Json
from .cases_envelopes import NAMES, T
from .control import down, grant, proof_head, up, welcome
from .envelopes import CLEAR, RETAINED, WILL
from .model import Client, Grant, Order, client, rnd, tlv, u
from .session_steps import (
    MS,
    Talk,
    ask_token,
    begin,
    connect,
    hear,
    order,
    publish,
    ready,
    refuse,
    sign,
)


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
    want = [begin(c, 2, 1, True), sign(c, 2, 1, True, 90000)]
    what = "KG time in the welcome only once, whatever the caller wants"
    t.tell("reconnect-kg-time", "4.1", what, c, *ready(c), *want)
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
    _receipt_and_notice(t, c)
    wrong = down(c, order(6), 1, notice[:9])
    t.tell("notice-cut", "4.4", "a notice that is cut", c, *ready(c), refuse(wrong, "malformed"))
    unknown = down(c, order(6), 1, b"\x70abc")
    t.tell("unknown-op", "4.4", "an op that nobody knows", c, *ready(c), hear(unknown, 0x70, None))
    for name, said in (("reply", b"done"), ("reply-empty", b"")):
        last = hear(down(c, order(6), 1, b"\x07" + u(20, 3) + said), 7, [20, said.hex()])
        t.tell(name, "4.4", "a family's reply to the command of ctr 20", c, *ready(c), last)
    said = u(8, 1) + b"purposes" + b"told"
    last = hear(down(c, order(6), 1, b"\x09" + said), 9, said.hex())
    t.tell("news", "4.4", "what a family tells", c, *ready(c), last)
    cut = refuse(down(c, order(6), 1, b"\x07" + u(20, 2)), "malformed")
    t.tell("reply-cut", "4.4", "a reply without its ctr", c, *ready(c), cut)
    rec = rnd("stands for a record", 130)
    last = hear(down(c, order(6), 1, b"\x05" + rec), 5, rec.hex())
    t.tell("record", "4.4", "a record is handed on", c, *ready(c), last)
    body = grant(Grant())
    last = hear(down(c, order(6), 1, b"\x08" + body), 8, body.hex(), flip=True)
    t.tell("grant", "4.4", "a grant is handed on", c, *ready(c), last)

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


def _receipt_and_notice(t: Talk, c: Client) -> None:
    """What a receipt has shown is delivered, whatever a notice says (4.4)."""
    shown, not_shown = 20, 19
    receipt = b"\x02" + u(shown, 3) + u(0b101, 8)
    taken = hear(down(c, order(6), 1, receipt), 2, [shown, u(0b101, 8).hex()])

    def notice(seq: int, what: int, ctr: int, told: int, conn: int = 1) -> Json:
        body = u(3, 1) + u(what, 1) + u(ctr, 3) + u(4, 1) + u(4, 1) + b"rule" + b"it came before"
        packet = down(c, order(seq), conn, body)
        return hear(
            packet, 3, [what, told, 4, "rule", "it came before"], 9500 if conn > 1 else 1500
        )

    def yes(ctr: int) -> Json:
        return {"do": "receipted", "ctr": ctr, "out": {"yes": True}}

    for name, what, steps in (
        ("receipt-then-notice", "a notice behind the receipt of its ctr names nobody",
         [taken, notice(7, 1, shown, 0), yes(shown)]),
        ("receipt-then-notice-lower", "likewise of an earlier ctr that the receipt shows",
         [taken, notice(7, 1, 18, 0), yes(18)]),
        ("notice-then-receipt", "a notice before the receipt of its ctr: the receipt counts",
         [notice(5, 1, shown, shown), taken, yes(shown)]),
        ("receipt-of-another", "a notice of a ctr that the receipt does not show",
         [taken, notice(7, 1, not_shown, not_shown)]),
        ("receipt-then-notice-above", "a notice of a ctr above the receipt's top",
         [taken, notice(7, 1, shown + 1, shown + 1)]),
        ("receipt-then-notice-command", "a receipt says nothing of a control packet of that ctr",
         [taken, notice(7, 4, shown, shown)]),
        ("receipt-then-notice-nobody", "a notice that names nobody", [taken, notice(7, 1, 0, 0)]),
    ):  # fmt: skip
        t.tell(name, "4.4", what, c, *ready(c), *steps)
    welcomed = hear(down(c, order(1), 2, welcome(MS + 8000, top=shown, mask=1)), 1, 0, 9500)
    steps = [*ready(c), *connect(c, 2, 1, mono=9000), welcomed, notice(2, 1, shown, 0, 2)]
    t.tell("welcome-then-notice", "4.4", "the receipt in a welcome counts likewise", c, *steps)


def add(cases: Cases) -> None:
    """All cases of this file."""
    talk = Talk(cases)
    _out(talk)
    _in(talk)
