"""Cases of section 4.4: control packets and their bodies."""

from __future__ import annotations

from .case import Cases, Json, cut, link_json, with_byte
from .cases_envelopes import NAMES, ORDER, T
from .control import down, up, welcome
from .model import client, lentopic, rnd, tag, tlv, u


def _up(cases: Cases) -> None:
    n_c = rnd("time nonce", 16)
    bodies = {
        "command": u(0x81, 1) + u(8, 1) + b"purposes" + b"reserve",
        "time": u(0x82, 1) + n_c,
        "fetch": u(0x83, 1) + u(17, 3),
    }
    for suite, label in NAMES.items():
        c = client(suite)
        for name, body in bodies.items():
            given = {**link_json(c), "packet": up(c, 20, T, body).hex()}
            out = {"ctr": 20, "s1": T, "body": body.hex()}
            cases.good(f"up-{label}-{name}", "4.4", f"op {name}", "up", given, out, "packet")
    c = client()
    packet = up(c, 20, T, bodies["fetch"])
    right = {**link_json(c), "packet": packet.hex()}

    def bad(name: str, what: str, change: Json, refuse: str = "unauthentic") -> None:
        cases.bad(f"up-{name}", "4.4", what, "up", {**right, **change}, refuse)

    bad("other-client", "from another client", {"client": 8})
    bad("other-mediator", "at another mediator", {"mediator": 2})
    bad("other-boot", "in another boot session", {"boot": 42})
    bad("other-suite", "on a link of the other suite", {"suite": 2}, "unsupported")
    bad("ctr-changed", "another ctr", {"packet": with_byte(packet, 4, 21)})
    bad("time-changed", "another s1", {"packet": with_byte(packet, 8, packet[8] ^ 1)})
    bad("type", "m2's first byte", {"packet": with_byte(packet, 0, 0x12)}, "malformed")
    bad("low-nibble", "low nibble not 0", {"packet": with_byte(packet, 1, 0x18)}, "malformed")
    bad("ctr-zero", "ctr 0", {"packet": up(c, 0, T, bodies["fetch"]).hex()}, "malformed")
    bad("no-body", "an empty body", {"packet": up(c, 20, T, b"").hex()}, "malformed")
    for size in (0, 9, 25):
        bad(f"truncated-{size}", f"{size} bytes", {"packet": cut(packet, size)}, "malformed")
    bad("tag-cut", "a tag of 15 bytes", {"packet": cut(packet, len(packet) - 1)})


def _down(cases: Cases) -> None:
    kg = rnd("stands for KG time", 43)
    mask = 0b1011
    bodies = {
        "welcome": welcome(T * 1000, top=3, mask=mask),
        "welcome-kg-time": welcome(T * 1000, block=tlv((1, kg))),
        "receipt": u(2, 1) + u(16, 3) + u(0xFFFF, 8),
        "notice": u(3, 1) + u(1, 1) + u(20, 3) + u(5, 1) + u(9, 1) + b"labels.rp" + b"denied",
        "epoch": u(4, 1) + u(16, 3) + u(6, 3) + u(91, 4) + u(T + 600, 4),
        "record": u(5, 1) + rnd("stands for a record", 130),
        "time": u(6, 1) + rnd("time nonce", 16) + u(T * 1000, 6) + b"\x00",
        "unknown-op": u(0x70, 1) + b"whatever",
    }
    for suite, label in NAMES.items():
        c = client(suite)
        for name, body in bodies.items():
            given = {**link_json(c), "conn": 4, "packet": down(c, ORDER, 4, body).hex()}
            out = {"order": ORDER.raw.hex(), "body": body.hex()}
            cases.good(f"down-{label}-{name}", "4.4", name, "down", given, out, "packet")
    c = client()
    packet = down(c, ORDER, 4, bodies["receipt"])
    right = {**link_json(c), "conn": 4, "packet": packet.hex()}

    def bad(name: str, what: str, change: Json, refuse: str = "unauthentic") -> None:
        cases.bad(f"down-{name}", "4.4", what, "down", {**right, **change}, refuse)

    bad("other-conn", "of another connection", {"conn": 5})
    bad("other-client", "to another client", {"client": 8})
    bad("other-mediator", "from another mediator", {"mediator": 2})
    bad("other-boot", "of another boot session", {"boot": 42})
    bad("other-salt", "of a boot session with another salt", {"salt": rnd("other salt", 8).hex()})
    bad("other-suite", "on a link of the other suite", {"suite": 2}, "unsupported")
    bad("seq-changed", "another seq", {"packet": with_byte(packet, 13, 5)})
    bad("type", "an up packet's first byte", {"packet": with_byte(packet, 0, 0x14)}, "malformed")
    bad("low-nibble", "low nibble not 0", {"packet": with_byte(packet, 1, 0x11)}, "malformed")
    bad("no-body", "an empty body", {"packet": down(c, ORDER, 4, b"").hex()}, "malformed")
    for size in (0, 14, 30):
        bad(f"truncated-{size}", f"{size} bytes", {"packet": cut(packet, size)}, "malformed")
    aad = packet[:14] + c.site + u(7, 3) + u(1, 3) + u(4, 3) + lentopic(b"!c2")
    wrong = packet[:-16] + tag(1, c.key(3), ORDER.raw, aad)
    bad("other-topic", "bound to another topic", {"packet": wrong.hex()})


def _bodies(cases: Cases) -> None:
    full = 2**64 - 1
    for name, body, top, mask in (
        ("plain", welcome(T * 1000 + 5, top=70, mask=full), 70, full),
        ("limits", welcome(2**48 - 1, 1, 0xFFFFFF, 0xFFFFFF, 1, 0xFFFFFF, 2**32 - 1), 0xFFFFFF, 1),
    ):
        high = name == "limits"
        out: Json = {
            "status": int(high),
            "ms": 2**48 - 1 if high else T * 1000 + 5,
            "boot_floor": 0xFFFFFF if high else 41,
            "top": top,
            "mask": u(mask, 8).hex(),
            "epoch": 0xFFFFFF if high else 5,
            "kseq": 2**32 - 1 if high else 90,
            "tlv": [],
        }
        given = {"body": body.hex()}
        cases.good(f"welcome-{name}", "4.4", "body of op 1", "body.welcome", given, out)
    body = welcome(T * 1000)
    for name, what, data, refuse in (
        ("no-tlv", "no TLV block", body[:-1], "malformed"),
        ("cut", "cut in kseq", body[:27], "malformed"),
        ("other-op", "op 2", b"\x02" + body[1:], "malformed"),
        ("tlv-cut", "a TLV block that is cut", body[:-1] + b"\x05\x01", "malformed"),
        ("critical", "unknown critical type", body[:-1] + tlv((0x90, b"")), "unsupported"),
    ):
        case = {"body": data.hex()}
        cases.bad(f"welcome-{name}", "4.4", what, "body.welcome", case, refuse)
    body = u(2, 1) + u(16, 3) + u(0x8001, 8)
    out = {"top": 16, "mask": u(0x8001, 8).hex()}
    given = {"body": body.hex()}
    cases.good("receipt-plain", "4.4", "body of op 2", "body.receipt", given, out)
    for name, data in (("cut", body[:-1]), ("longer", body + b"\x00")):
        case = {"body": data.hex()}
        cases.bad(f"receipt-{name}", "4.4", "wrong length", "body.receipt", case, "malformed")
    head = u(3, 1) + u(2, 1) + u(20, 3) + u(5, 1)
    for name, rule, reason in (
        ("plain", b"labels.rp", b"the topic has another label"),
        ("empty", b"", b""),
        ("utf8", b"r", "größe".encode()),
        ("longest", b"r" * 255, b"x" * 200),
    ):
        body = head + u(len(rule), 1) + rule + reason
        out = {"what": 2, "ctr": 20, "class": 5, "rule": rule.decode(), "reason": reason.hex()}
        given = {"body": body.hex()}
        cases.good(f"notice-{name}", "4.4", "body of op 3", "body.notice", given, out)
    for name, what, data in (
        ("cut", "no rule's length", head),
        ("rule-cut", "a rule longer than the body", head + b"\x05abc"),
        ("no-utf8", "a reason that is no UTF-8", head + b"\x00" + b"gr\xf6\xdfe"),
        ("reason-long", "a reason of 201 bytes", head + b"\x00" + b"x" * 201),
    ):
        case = {"body": data.hex()}
        cases.bad(f"notice-{name}", "4.4", what, "body.notice", case, "malformed")
    for name, said in (("plain", b"\x00told"), ("empty", b"")):
        given = {"body": (u(9, 1) + u(8, 1) + b"purposes" + said).hex()}
        out = {"family": "purposes", "said": said.hex()}
        cases.good(f"news-{name}", "4.4", "body of op 9", "body.news", given, out)
    for name, what, data in (
        ("cut", "no name's length", u(9, 1)),
        ("name-cut", "a name longer than the body", u(9, 1) + b"\x05abcd"),
        ("no-name", "an empty name", u(9, 1) + b"\x00abc"),
        ("no-ascii", "a name that is not ASCII", u(9, 1) + b"\x02r\xf6"),
    ):
        case = {"body": data.hex()}
        cases.bad(f"news-{name}", "4.4", what, "body.news", case, "malformed")


def add(cases: Cases) -> None:
    """All cases of this file."""
    for group in (_up, _down, _bodies):
        group(cases)
