"""Cases of sections 7 and 8: provisioning, KG time, records, manifests, identities."""

from __future__ import annotations

from .case import Cases, Json, client_json, cut, roots_json, with_byte
from .cases_envelopes import NAMES, T
from .control import answer, answer_body, kg_time, request
from .envelopes import manifest, record
from .model import Client, F, Order, client, rnd, roots, tag, tlv, u

N_C = rnd("N_c", 16)
MS = T * 1000 + 250
ORDER = Order(2, MS, 0)


def _ps(c: Client, **more: object) -> Json:
    return {"site": c.site.hex(), "client": c.client, "suite": c.suite, "ps": c.ps.hex(), **more}


def _requests(cases: Cases) -> None:
    for suite, name in NAMES.items():
        c = client(suite)
        for gen in (0, 3):
            given = _ps(c, mediator=1, packet=request(c, 41, N_C, gen).hex())
            out = {"client": 7, "gen": gen, "boot": 41, "n_c": N_C.hex()}
            what = f"a request, gen {gen} held"
            cases.good(f"request-{name}-gen{gen}", "7.2", what, "request", given, out, "packet")
    c = client()
    packet = request(c, 41, N_C)

    def bad(name: str, what: str, change: Json, refuse: str = "unauthentic") -> None:
        given = {**_ps(c, mediator=1, packet=packet.hex()), **change}
        cases.bad(f"request-{name}", "7.2", what, "request", given, refuse)

    bad("other-secret", "under another ps", {"ps": rnd("other ps", 32).hex()})
    bad("other-site", "of another site", {"site": rnd("other site", 4).hex()})
    bad("other-mediator", "passed on by another mediator", {"mediator": 2})
    bad("other-suite", "not the link's suite", {"suite": 2}, "unsupported")
    bad("client-changed", "another client", {"packet": with_byte(packet, 4, 8)})
    bad("gen-changed", "another gen", {"packet": with_byte(packet, 7, 9)})
    bad("boot-changed", "another boot", {"packet": with_byte(packet, 10, 1)})
    bad("type", "first byte 0x1b", {"packet": with_byte(packet, 0, 0x1B)}, "malformed")
    bad("low-nibble", "low nibble not 0", {"packet": with_byte(packet, 1, 0x11)}, "malformed")
    for size in (0, 1, 2, 5, 8, 11, 27, 42):
        bad(f"truncated-{size}", f"{size} bytes", {"packet": cut(packet, size)}, "malformed")
    bad("longer", "44 bytes", {"packet": packet.hex() + "00"}, "malformed")
    head = packet[:27]
    key = F("p1", c.site, u(16 + c.suite, 1) + N_C, c.ps)
    wrong = head + tag(1, key, bytes(12), head + c.site + u(1, 3))
    bad("other-direction", "under the answer's key", {"packet": wrong.hex()})
    key = F("p1", c.site, u(c.suite, 1) + N_C, c.ps)
    wrong = head + tag(1, key, bytes(12), head + c.site)
    bad("no-mediator", "bound to no mediator", {"packet": wrong.hex()})


def _answers(cases: Cases) -> None:
    for suite, name in NAMES.items():
        c = client(suite)
        for block_name, block in (("", b"\x00"), ("-tlv", tlv((9, b"later")))):
            packet = answer(c, N_C, ORDER, answer_body(c, 4, 91, MS, block=block))
            own = c.own
            out: Json = {"status": 0, "gen": 4, "label": 16, "epoch": 5, "suite": suite}
            out |= {"link_suite": suite, "mediator": 1, "kseq": 91, "ms": MS, "r": own.r.hex()}
            out |= {"r_bar": own.r_bar.hex(), "km": c.km.hex()}
            given = _ps(c, n_c=N_C.hex(), packet=packet.hex())
            title = f"answer-{name}{block_name}"
            cases.good(title, "7.2", "status 0", "answer", given, out, "packet", "n_c")
    c = client()
    for status in (1, 2):
        packet = answer(c, N_C, ORDER, b"", status)
        given = _ps(c, n_c=N_C.hex(), packet=packet.hex())
        out = {"status": status}
        what = f"status {status}, no body"
        cases.good(f"answer-status{status}", "7.2", what, "answer", given, out, "packet")
    body = answer_body(c, 4, 91, MS)
    packet = answer(c, N_C, ORDER, body)

    def bad(name: str, what: str, change: Json, refuse: str = "unauthentic") -> None:
        given = {**_ps(c, n_c=N_C.hex(), packet=packet.hex()), **change}
        cases.bad(f"answer-{name}", "7.2", what, "answer", given, refuse)

    bad("other-nonce", "to another N_c", {"n_c": rnd("other N_c", 16).hex()})
    bad("other-client", "to another client", {"client": 8})
    bad("other-secret", "under another ps", {"ps": rnd("other ps", 32).hex()})
    bad("other-site", "of another site", {"site": rnd("other site", 4).hex()})
    bad("other-suite", "not the request's suite", {"suite": 2}, "unsupported")
    bad("status-changed", "status 1 in front of a body", {"packet": with_byte(packet, 1, 0x11)})
    bad("type", "first byte 0x1a", {"packet": with_byte(packet, 0, 0x1A)}, "malformed")
    for size in (0, 1, 2, 5, 11, 14, 29):
        bad(f"truncated-{size}", f"{size} bytes", {"packet": cut(packet, size)}, "malformed")
    bad("tag-cut", "a tag of 15 bytes", {"packet": cut(packet, len(packet) - 1)})

    def sealed(name: str, what: str, plain: bytes, refuse: str = "malformed") -> None:
        bad(name, what, {"packet": answer(c, N_C, ORDER, plain).hex()}, refuse)

    sealed("body-cut", "a body without its TLV block", body[:-1])
    sealed("body-empty", "status 0 without a body", b"")
    sealed("body-longer", "bytes behind the TLV block", body + b"\x00")
    critical = answer_body(c, 4, 91, MS, block=tlv((0x89, b"")))
    sealed("critical", "unknown critical type", critical, "unsupported")


def _times(cases: Cases) -> None:
    welcome_nonce = client().salt + u(41, 3) + u(4, 3) + b"\x00\x00"
    for suite, name in NAMES.items():
        c = client(suite)
        for title, n_c in (("asked", N_C), ("welcome", welcome_nonce)):
            packet = kg_time(c, n_c, ORDER, MS, 5, 91)
            given = _ps(c, n_c=n_c.hex(), packet=packet.hex())
            out = {"ms": MS, "epoch": 5, "kseq": 91}
            what = f"KG time, {title}"
            cases.good(f"time-{name}-{title}", "7.3", what, "kg-time", given, out, "packet", "n_c")
    c = client()
    packet = kg_time(c, N_C, ORDER, MS, 5, 91)

    def bad(name: str, what: str, change: Json, refuse: str = "unauthentic") -> None:
        given = {**_ps(c, n_c=N_C.hex(), packet=packet.hex()), **change}
        cases.bad(f"time-{name}", "7.3", what, "kg-time", given, refuse)

    bad("other-nonce", "for another N_c", {"n_c": rnd("other N_c", 16).hex()})
    bad("other-client", "for another client", {"client": 8})
    bad("other-secret", "under another ps", {"ps": rnd("other ps", 32).hex()})
    bad("other-suite", "not the link's suite", {"suite": 2}, "unsupported")
    bad("order-changed", "another ms in the header", {"packet": with_byte(packet, 10, 0)})
    bad("type", "first byte 0x1b", {"packet": with_byte(packet, 0, 0x1B)}, "malformed")
    bad("low-nibble", "low nibble not 0", {"packet": with_byte(packet, 1, 0x11)}, "malformed")
    bad("truncated", "42 bytes", {"packet": cut(packet, 42)}, "malformed")
    bad("longer", "44 bytes", {"packet": packet.hex() + "00"}, "malformed")


def _records(cases: Cases) -> None:
    site = client().site

    def good(name: str, what: str, top: tuple[int, int, int], n: tuple[int, int, int]) -> None:
        source, target = roots(*top), roots(*n)
        packet = record(site, source, target, 91, ORDER, T + 600, "kid " + name)
        out = roots_json(target) | {"kseq": 91, "handover_end": T + 600}
        where = f"b/{n[0]}/{n[1]}" if n[0] == top[0] else f"z/{top[0]}/{n[0]}"
        given = {"site": site.hex(), "top": roots_json(source), "packet": packet.hex()}
        out = {**out, "topic": f"@sm1/{where}"}
        cases.good(f"record-{name}", "8", what, "record", given, out, "packet")

    good("ccm", "a derivation", (16, 5, 1), (17, 2, 1))
    good("chacha", "a derivation", (16, 5, 2), (17, 2, 2))
    good("ccm-to-chacha", "to a label of the other suite", (16, 5, 1), (18, 2, 2))
    good("chacha-to-ccm", "to a label of the other suite", (16, 5, 2), (17, 2, 1))
    good("back-link", "to an older epoch of the same label", (16, 5, 1), (16, 4, 1))
    good("to-bottom", "to ⊥", (16, 5, 1), (1, 1, 1))
    top, n = roots(16, 5, 1), roots(17, 2, 1)
    packet = record(site, top, n, 91, ORDER)

    def bad(name: str, what: str, change: Json, refuse: str = "unauthentic") -> None:
        right = {"site": site.hex(), "top": roots_json(top), "packet": packet.hex()}
        cases.bad(f"record-{name}", "8", what, "record", {**right, **change}, refuse)

    bad("other-label", "from another label", {"top": roots_json(roots(18, 5, 1))}, "no-key")
    bad("other-epoch", "from another epoch", {"top": roots_json(roots(16, 6, 1))}, "no-key")
    bad(
        "other-suite",
        "the source has the other suite",
        {"top": roots_json(top) | {"suite": 2}},
        "unsupported",
    )
    wrong = roots_json(top) | {"r_bar": top.r.hex()}
    bad("other-root", "under another root", {"top": wrong})
    bad("other-site", "of another site", {"site": rnd("other site", 4).hex()})
    bad("target-suite", "another suite of the target", {"packet": with_byte(packet, 1, 0x12)})
    bad("target-label", "another target", {"packet": with_byte(packet, 4, 18)})
    bad("target-epoch", "another epoch of the target", {"packet": with_byte(packet, 7, 3)})
    bad("kid", "another kid", {"packet": with_byte(packet, 14, packet[14] ^ 1)})
    bad("z", "another z", {"packet": with_byte(packet, 30, packet[30] ^ 1)})
    bad("kseq", "another kseq", {"packet": with_byte(packet, 97, 92)})
    bad("handover", "a later hand-over end", {"packet": with_byte(packet, 101, 1)})
    swapped = packet[:30] + packet[62:94] + packet[30:62] + packet[94:]
    bad("z-swapped", "z and z̄ exchanged", {"packet": swapped.hex()})
    bad("type", "a manifest's first byte", {"packet": with_byte(packet, 0, 0x19)}, "malformed")
    for size in (0, 1, 2, 5, 8, 11, 14, 22, 30, 62, 94, 98, 102, 114, 129):
        bad(f"truncated-{size}", f"{size} bytes", {"packet": cut(packet, size)}, "malformed")
    bad("longer", "131 bytes", {"packet": packet.hex() + "00"}, "malformed")


def _manifests(cases: Cases) -> None:
    site = client().site
    for suite, name in NAMES.items():
        own = roots(16, 5, suite)
        packet = manifest(site, own, 91, ORDER, T + 600)
        given = {"site": site.hex(), "own": roots_json(own), "packet": packet.hex()}
        out = {"label": 16, "epoch": 5, "kseq": 91, "handover_end": T + 600, "topic": "@sm1/m/16"}
        cases.good(f"manifest-{name}", "8", "a manifest", "manifest", given, out, "packet")
    own = roots(16, 5, 1)
    packet = manifest(site, own, 91, ORDER, T + 600)

    def bad(name: str, what: str, change: Json, refuse: str = "unauthentic") -> None:
        right = {"site": site.hex(), "own": roots_json(own), "packet": packet.hex()}
        cases.bad(f"manifest-{name}", "8", what, "manifest", {**right, **change}, refuse)

    bad("other-root", "under another root", {"own": roots_json(own) | {"r_bar": own.r.hex()}})
    bad("other-epoch", "of another epoch", {"own": roots_json(roots(16, 4, 1))}, "no-key")
    bad("other-label", "of another label", {"own": roots_json(roots(17, 5, 1))}, "no-key")
    bad(
        "other-suite",
        "the label has the other suite",
        {"own": roots_json(own) | {"suite": 2}},
        "unsupported",
    )
    bad("other-site", "of another site", {"site": rnd("other site", 4).hex()})
    bad("handover", "a later hand-over end", {"packet": with_byte(packet, 12, 0xFF)})
    bad("kseq", "another kseq", {"packet": with_byte(packet, 11, 92)})
    bad("low-nibble", "low nibble not 0", {"packet": with_byte(packet, 1, 0x11)}, "malformed")
    bad("truncated", "43 bytes", {"packet": cut(packet, 43)}, "malformed")
    bad("longer", "45 bytes", {"packet": packet.hex() + "00"}, "malformed")


def _accept(c: Client, packet: bytes, expect: Json, n_c: bytes = N_C) -> Json:
    return {"do": "accept", "n_c": n_c.hex(), "packet": packet.hex(), **expect}


def _accepted(c: Client, gen: int, kseq: int, link_suite: int = 0) -> Json:
    own = c.own
    out: Json = {"ms": MS, "gen": gen, "kseq": kseq, "label": own.label, "epoch": own.epoch}
    out |= {"suite": own.suite, "link_suite": link_suite or c.suite, "mediator": c.mediator}
    out |= {"r": own.r.hex(), "r_bar": own.r_bar.hex(), "km": c.km.hex()}
    return {"out": out, "flip": ["packet"]}


def _identities(cases: Cases) -> None:
    c = client()

    def put(
        name: str, what: str, packet: bytes, expect: Json, gen: int = 3, kseq: int = 90
    ) -> None:
        given = {"client": client_json(c, gen, kseq)}
        steps = [_accept(c, packet, expect)]
        cases.script(f"identity-{name}", "7.2", what, "identity", given, steps)

    def of(gen: int, kseq: int, epoch: int = 5, label: int = 16) -> bytes:
        target = roots(label, epoch, 1)
        return answer(c, N_C, ORDER, answer_body(c, gen, kseq, MS, target))

    put("first", "the first provisioning", of(1, 1), _accepted(c, 1, 1), 0, 0)
    put("same", "gen, kseq and epoch as held", of(3, 90), _accepted(c, 3, 90))
    up = c.but(own=roots(16, 6, 1))
    put("newer", "all higher", of(4, 95, 6), _accepted(up, 4, 95))
    down = c.but(own=roots(17, 1, 1))
    put(
        "other-label",
        "another label, whose epoch is lower",
        of(4, 95, 1, 17),
        _accepted(down, 4, 95),
    )
    body = answer_body(c, 4, 95, MS, roots(16, 5, 2), 2)
    suites = c.but(own=roots(16, 5, 2))
    put("suites", "new suites", answer(c, N_C, ORDER, body), _accepted(suites, 4, 95, 2))
    unknown: Json = {"refuse": "unsupported"}
    body = answer_body(c, 4, 95, MS, roots(16, 5, 5))
    put("label-suite-5", "an unknown suite of the label", answer(c, N_C, ORDER, body), unknown)
    body = answer_body(c, 4, 95, MS, None, 5)
    put("link-suite-5", "an unknown suite of the link", answer(c, N_C, ORDER, body), unknown)
    stale: Json = {"refuse": "stale"}
    put("gen-lower", "gen below the stored one", of(2, 95), stale)
    put("kseq-lower", "kseq below the stored one", of(4, 89), stale)
    put("epoch-lower", "the same label's epoch below the stored one", of(4, 95, 4), stale)
    steps = [
        _accept(c, of(4, 95, 6), _accepted(up, 4, 95)),
        _accept(c, of(5, 96, 5), stale),
    ]
    what = "in a session: the epoch that the last answer brought is not given back"
    given = {"client": client_json(c)}
    cases.script("identity-in-session", "7.2", what, "identity", given, steps)
    put("disabled", "status 1", answer(c, N_C, ORDER, b"", 1), {"refuse": "denied"})
    put("later", "status 2", answer(c, N_C, ORDER, b"", 2), {"refuse": "unavailable"})
    put("unknown-status", "status 9", answer(c, N_C, ORDER, b"", 9), {"refuse": "unavailable"})
    other = answer(c, rnd("other N_c", 16), ORDER, answer_body(c, 4, 95, MS))
    put("old-answer", "the answer to an earlier N_c", other, {"refuse": "unauthentic"})
    wrong = answer_body(c, 4, 95, MS, block=tlv((0x89, b"")))
    put(
        "critical", "unknown critical type", answer(c, N_C, ORDER, wrong), {"refuse": "unsupported"}
    )


def add(cases: Cases) -> None:
    """All cases of this file."""
    for group in (_requests, _answers, _times, _records, _manifests, _identities):
        group(cases)
