"""Cases of section 4: CONNECT proofs, tokens, control packets and their bodies."""

from __future__ import annotations

import base64

from .case import Cases, Json, cut, link_json, with_byte
from .cases_envelopes import LONG, NAMES, ORDER, PLAIN, UTF8, T
from .control import down, proof_head, sign_connect, token, up, welcome
from .envelopes import WILL, m1, m2
from .model import Client, b64u, client, lentopic, rnd, tag, tlv, u


def _text(raw: bytes) -> bytes:
    return u(len(raw), 2) + raw


def _remaining(n: int) -> bytes:
    out = b""
    while True:
        n, low = divmod(n, 128)
        out += bytes([low | (0x80 if n else 0)])
        if not n:
            return out


def connect_packet(
    c: Client,
    conn: int,
    low: int,
    flags: int = 0,
    client_id: bytes = b"m1-temp-sensor",
    will: tuple[bytes, bytes, int] | None = None,
) -> bytes:
    """A whole CONNECT of MQTT 3.1.1; will is (topic, m2, flags of section 3.2)."""
    bits = 0xC2
    middle = _text(client_id)
    if will:
        topic, payload, wflags = will
        bits |= 0x04 | (wflags >> 1 & 3) << 3 | (wflags & 1) << 5
        middle += _text(topic) + _text(payload)
    middle += _text(b"sealmq1") + u(54, 2) + proof_head(c, conn, low, flags)
    body = _text(b"MQTT") + b"\x04" + bytes([bits]) + u(60, 2) + middle
    return sign_connect(c, conn, b"\x10" + _remaining(len(body) + 22) + body)


def _connect(cases: Cases) -> None:
    def inputs(c: Client, packet: bytes) -> Json:
        all_of_it = link_json(c)
        part = {k: all_of_it[k] for k in ("site", "mediator", "suite", "km")}
        return {**part, "packet": packet.hex()}

    def good(
        name: str, what: str, c: Client, conn: int, low: int, packet: bytes, flags: int
    ) -> None:
        out = {"flags": flags, "gen": c.gen, "client": c.client, "boot": c.boot}
        rest = {"salt": c.salt.hex(), "conn": conn, "low": low}
        case = inputs(c, packet)
        cases.good(f"connect-{name}", "4.1", what, "connect", case, {**out, **rest}, "packet")

    for suite, name in NAMES.items():
        c = client(suite)
        good(name, "a proof over a whole CONNECT", c, 1, 1, connect_packet(c, 1, 1), 0)
        will = (b"machine/1/state", PLAIN, 3)
        topic, plain, wflags = will
        inner = m1(c, topic, plain, 1, 0, WILL, 255)
        sealed = m2(c, topic, inner, 1, 0, wflags, b"\x00")
        packet = connect_packet(c, 2, 9, 1, will=(topic, sealed, wflags))
        good(f"{name}-will", "with a will, asking for KG time", c, 2, 9, packet, 1)
    c = client()
    packet = connect_packet(c, 0xFFFFFF, 0xFFFFFF, client_id=b"i" * 64)
    good(
        "limits", "highest conn and low, a client id of 64 bytes", c, 0xFFFFFF, 0xFFFFFF, packet, 0
    )

    packet = connect_packet(c, 4, 70)
    right = inputs(c, packet)

    def bad(name: str, what: str, change: Json, refuse: str = "unauthentic") -> None:
        cases.bad(f"connect-{name}", "4.1", what, "connect", {**right, **change}, refuse)

    def swap(old: bytes, new: bytes) -> Json:
        if packet.count(old) != 1 or len(old) != len(new):
            raise ValueError(old)
        return {"packet": packet.replace(old, new).hex()}

    bad("other-mediator", "at another mediator", {"mediator": 2})
    bad("other-site", "at another site", {"site": rnd("other site", 4).hex()})
    bad("other-link-root", "under another link root", {"km": rnd("other km", 32).hex()})
    bad("other-suite", "on a link of the other suite", {"suite": 2}, "unsupported")
    bad("client-id", "another client id", swap(b"m1-temp-sensor", b"m2-temp-sensor"))
    bad("user", "another user name", swap(b"sealmq1", b"sealmq2"))
    bad("clean-session", "clean session taken away", swap(b"MQTT\x04\xc2\x00", b"MQTT\x04\xc0\x00"))
    bad("keep-alive", "another keep alive", swap(b"\xc2\x00\x3c", b"\xc2\x00\x3d"))
    for name, what, other in (
        ("conn-raised", "a higher conn in front of the old tag", proof_head(c, 5, 70)),
        ("low-lowered", "a lower low", proof_head(c, 4, 1)),
        ("flags-changed", "KG time asked for by somebody else", proof_head(c, 4, 70, 1)),
        ("client-changed", "another client number", proof_head(c.but(client=8), 4, 70)),
        ("gen-changed", "another gen", proof_head(c.but(gen=4), 4, 70)),
        ("boot-changed", "another boot", proof_head(c.but(boot=42), 4, 70)),
    ):
        bad(name, what, swap(proof_head(c, 4, 70), other))
    earlier = connect_packet(c, 3, 70)
    bad(
        "old-tag", "the tag of the CONNECT before", {"packet": (packet[:-22] + earlier[-22:]).hex()}
    )
    x = packet[:-22]
    aad = u(0x16, 1) + c.site + u(1, 3) + x
    wrong = x + b64u(tag(1, c.key(1), c.salt + b"\x03" + u(4, 3), aad))
    bad("other-use", "under the publish key", {"packet": wrong.hex()})
    aad = u(0x16, 1) + c.site + u(1, 3) + x[2:]
    wrong = x + b64u(tag(1, c.key(2), c.salt + b"\x03" + u(4, 3), aad))
    bad("without-fixed-header", "X without its first two bytes", {"packet": wrong.hex()})
    flagged = sign_connect(c, 4, x[:-32] + proof_head(c, 4, 70, 2))
    bad("unknown-flag", "an unknown flag", {"packet": flagged.hex()}, "unsupported")
    loose = bytes([packet[-1] + 1 if packet[-1] not in b"Z9z-_" else packet[-1] - 1])
    text = {"packet": (packet[:-1] + loose).hex()}
    bad("unused-bits", "unused bits of the tag's last character", text, "malformed")
    text = {"packet": (packet[:-5] + b"=" + packet[-4:]).hex()}
    bad("alphabet", "a character that is none of base64url", text, "malformed")


def _password(cases: Cases) -> None:
    c = client().but(gen=0)
    head = proof_head(c, 0, 0)
    fields: Json = {"flags": 0, "gen": 0, "client": 7, "boot": 41, "salt": c.salt.hex(), "conn": 0}
    out = {**fields, "low": 0, "suite": 1}
    given = {"password": head.hex()}
    cases.good("password-quarantine", "4.1", "before provisioning", "password", given, out)
    full = proof_head(client(), 4, 70)
    for name, what, text, refuse in (
        ("no-tag", "gen 3 and no tag", full, "malformed"),
        ("tag-in-quarantine", "gen 0 and a tag", head + b"A" * 22, "malformed"),
        ("empty", "empty", b"", "malformed"),
        ("31", "31 characters", head[:-1], "malformed"),
        ("33", "33 characters", head + b"A", "malformed"),
        ("53", "53 characters: a tag of 126 bits", full + b"A" * 21, "malformed"),
        ("55", "55 characters", full + b"A" * 23, "malformed"),
        ("alphabet", "a character that is none of base64url", b"+" + head[1:], "malformed"),
        ("flags", "an unknown flag", proof_head(c, 0, 0, 8), "unsupported"),
    ):
        cases.bad(f"password-{name}", "4.1", what, "password", {"password": text.hex()}, refuse)


def _tokens(cases: Cases) -> None:
    def inputs(c: Client, text: bytes, qos: int, op: int) -> Json:
        return {**link_json(c), "qos": qos, "op": op, "text": text.hex()}

    def good(name: str, what: str, c: Client, filt: bytes, qos: int = 1, op: int = 0) -> None:
        out = {"ctr": 12}
        case = inputs(c, token(c, 12, filt, qos, op), qos, op)
        cases.good(f"token-{name}", "4.2", what, "token", case, out, "text")

    for suite, name in NAMES.items():
        c = client(suite)
        good(f"{name}-subscribe", "SUBSCRIBE", c, b"machine/+/temperature")
        good(f"{name}-unsubscribe", "UNSUBSCRIBE", c, b"machine/+/temperature", 0, 1)
    c = client()
    good("share", "in front of $share", c, b"$share/g/machine/#", 2)
    good("purpose", "with a purpose's encoding behind it", c, b"!p1/billing/machine/#")
    good("utf8", "a filter in UTF-8", c, UTF8)
    good("hash", "everything", c, b"#", 0)
    good("long", "a filter of 1,024 bytes", c, LONG)

    filt = b"machine/1/temperature"
    text = token(c, 12, filt, 1, 0)
    right = inputs(c, text, 1, 0)

    def bad(name: str, what: str, change: Json, refuse: str = "unauthentic") -> None:
        cases.bad(f"token-{name}", "4.2", what, "token", {**right, **change}, refuse)

    bad("other-filter", "in front of another filter", {"text": (text[:31] + b"#").hex()})
    bad("other-qos", "another QoS", {"qos": 2})
    bad("other-op", "of an UNSUBSCRIBE", {"op": 1, "qos": 1})
    bad("other-client", "another client's", {"client": 8})
    bad("other-mediator", "at another mediator", {"mediator": 2})
    bad("other-boot", "in another boot session", {"boot": 42})
    bad("other-suite", "under the other suite", {"suite": 2})
    raw = u(13, 3) + base64.urlsafe_b64decode(text[4:30] + b"==")[3:]
    bad("other-ctr", "another counter", {"text": (text[:4] + b64u(raw) + text[30:]).hex()})
    bad("no-filter", "no filter behind it", {"text": text[:31].hex()}, "malformed")
    bad("no-token", "a plain filter", {"text": filt.hex()}, "malformed")
    bad("no-slash", "no / behind the token", {"text": (text[:30] + text[31:]).hex()}, "malformed")
    bad("short", "25 characters", {"text": (text[:29] + text[30:]).hex()}, "malformed")
    bad("other-version", "!s2", {"text": (b"!s2" + text[3:]).hex()}, "malformed")
    bad("in-share", "behind $share", {"text": (b"$share/g/" + text).hex()}, "malformed")
    bad("alphabet", "a + in the token", {"text": (text[:10] + b"+" + text[11:]).hex()}, "malformed")
    bad(
        "wildcard",
        "a filter that is none",
        {"text": token(c, 12, b"a/#/b", 1, 0).hex()},
        "malformed",
    )
    long = token(c, 12, b"f" * 1025, 1, 0)
    bad("too-long", "a filter of 1,025 bytes", {"text": long.hex()}, "malformed")


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


def add(cases: Cases) -> None:
    """All cases of this file."""
    for group in (_connect, _password, _tokens, _up, _down, _bodies):
        group(cases)
