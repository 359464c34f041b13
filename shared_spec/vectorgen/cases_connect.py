"""Cases of sections 4.1 and 4.2: CONNECT proofs and tokens."""

from __future__ import annotations

import base64

from .case import Cases, Json, link_json
from .cases_envelopes import LONG, NAMES, PLAIN, UTF8
from .control import proof_head, sign_connect, token
from .envelopes import WILL, m1, m2
from .model import Client, b64u, client, rnd, tag, u


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
    properties: bytes | None = None,
) -> bytes:
    """A whole CONNECT; will is (topic, m2, flags of section 3.2). properties: those of MQTT 5, as
    they stand there; None: it is of MQTT 3.1.1.
    """
    bits = 0xC2
    middle = _text(client_id)
    if will:
        topic, payload, wflags = will
        bits |= 0x04 | (wflags >> 1 & 3) << 3 | (wflags & 1) << 5
        middle += (b"" if properties is None else b"\0") + _text(topic) + _text(payload)
    middle += _text(b"sealmq1") + u(54, 2) + proof_head(c, conn, low, flags)
    level, said = b"\x04", b""
    if properties is not None:
        level, said = b"\x05", _remaining(len(properties)) + properties
    body = _text(b"MQTT") + level + bytes([bits]) + u(60, 2) + said + middle
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
        packet = connect_packet(c, 1, 9, 1, will=(topic, sealed, wflags))
        good(f"{name}-will", "with a will, asking for KG time", c, 1, 9, packet, 1)
        what = "low covers tokens as well"
        good(f"{name}-fresh-tokens", what, c, 3, 9, connect_packet(c, 3, 9, 2), 2)
    good("both-flags", "both flags", client(), 1, 1, connect_packet(client(), 1, 1, 3), 3)
    what = "low 0 is as good as 1: it refuses nothing"
    good("low-0", what, client(), 1, 0, connect_packet(client(), 1, 0, 2), 2)
    # Session expiry 3,600 s, receive maximum 20.
    said = b"\x11" + u(3600, 4) + b"\x21" + u(20, 2)
    five = connect_packet(client(), 1, 1, properties=said)
    good("mqtt5", "of MQTT 5, with two properties", client(), 1, 1, five, 0)
    c, topic, wflags = client(), b"machine/1/state", 3
    sealed = m2(c, topic, m1(c, topic, PLAIN, 1, 0, WILL, 255), 1, 0, wflags, b"\x00")
    packet = connect_packet(c, 1, 9, will=(topic, sealed, wflags), properties=b"")
    good("mqtt5-will", "of MQTT 5, with a will and no properties", c, 1, 9, packet, 0)
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
    for name, what, old, new in (
        ("property-changed", "a property changed", b"\x21\x00\x14", b"\x21\x00\x01"),
        ("property-replaced", "another property", b"\x11\x00\x00\x0e\x10", b"\x27\x00\x00\x0e\x10"),
        ("version-lowered", "the version of MQTT lowered", b"MQTT\x05", b"MQTT\x04"),
        ("clean-start", "clean start taken away", b"MQTT\x05\xc2", b"MQTT\x05\xc0"),
    ):
        if five.count(old) != 1:
            raise ValueError(old)
        bad(f"mqtt5-{name}", what, {"packet": five.replace(old, new).hex()})
    for name, what, other in (
        ("conn-raised", "a higher conn in front of the old tag", proof_head(c, 5, 70)),
        ("low-lowered", "a lower low", proof_head(c, 4, 1)),
        ("flags-changed", "low made to cover tokens", proof_head(c, 4, 70, 2)),
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
    for flag in (4, 8):
        flagged = sign_connect(c, 4, x[:-32] + proof_head(c, 4, 70, flag)).hex()
        bad(f"unknown-flag-{flag}", "an unknown flag", {"packet": flagged}, "unsupported")
    flagged = sign_connect(c, 4, x[:-32] + proof_head(c, 4, 70, 1)).hex()
    bad("kg-time-later", "KG time asked for with conn 4", {"packet": flagged}, "malformed")
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
    pair = [proof_head(client(), conn, 1, 1) + b"A" * 22 for conn in (2, 0)]
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
        ("suite-0", "suite 0", proof_head(c.but(gen=3, suite=0), 4, 70) + b"A" * 22, "unsupported"),
        ("suite-3", "suite 3", proof_head(c.but(gen=3, suite=3), 4, 70) + b"A" * 22, "unsupported"),
        ("quarantine-suite-0", "gen 0, suite 0", proof_head(c.but(suite=0), 0, 0), "unsupported"),
        ("quarantine-suite-3", "gen 0, suite 3", proof_head(c.but(suite=3), 0, 0), "unsupported"),
        ("quarantine-kg-time", "gen 0 and flag 0", proof_head(c, 0, 0, 1), "malformed"),
        ("quarantine-fresh-tokens", "gen 0 and flag 1", proof_head(c, 0, 0, 2), "malformed"),
        ("quarantine-conn", "gen 0 and a conn", proof_head(c, 1, 0), "malformed"),
        ("quarantine-low", "gen 0 and a low", proof_head(c, 0, 1), "malformed"),
        ("conn-0", "conn 0 in a session", proof_head(client(), 0, 1) + b"A" * 22, "malformed"),
        (
            "boot-0",
            "boot 0 in a session",
            proof_head(client().but(boot=0), 1, 1) + b"A" * 22,
            "malformed",
        ),
        ("kg-time-later", "KG time for conn 2", pair[0], "malformed"),
        ("kg-time-conn-0", "KG time for conn 0", pair[1], "malformed"),
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
    good("purpose", "with a purpose's encoding behind it", c, b"!AP/machine/%23{billing}")
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
    zero = token(c, 0, filt, 1, 0)
    bad("ctr-zero", "ctr 0", {"text": zero.hex()}, "malformed")
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


def add(cases: Cases) -> None:
    """All cases of this file."""
    for group in (_connect, _password, _tokens):
        group(cases)
