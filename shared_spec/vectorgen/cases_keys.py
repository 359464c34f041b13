"""Cases of sections 1.2, 2 and 7.1: key derivations, ciphers, enrolment."""

from __future__ import annotations

from .case import Cases, Json
from .model import F, Grant, client, link_key, rnd, roots, seal, u

SITE = rnd("site", 4)
ROOT = roots(16, 5, 1)


def _keys(c: Cases) -> None:
    site, salt, km, ps = (
        SITE.hex(),
        rnd("sensor salt", 8),
        rnd("sensor km", 32),
        rnd("sensor ps", 32),
    )
    kid, n_c = rnd("kid", 8), rnd("N_c", 16)

    def put(name: str, what: str, inputs: Json, key: bytes) -> None:
        op = "key." + name.split("-")[0]
        c.good("key-" + name, "2", what, op, {"site": site, **inputs}, {"key": key.hex()})

    for h in (0, 1):
        root = ROOT.r_bar if h else ROOT.r
        inputs = {"h": h, "n": 17, "e_n": 258, "kid": kid.hex(), "root": root.hex()}
        key = F("z1", SITE, u(h, 1) + u(17, 3) + u(258, 3) + kid, root)
        put(f"pad-{'bar' if h else 'plain'}", "pad of z, hierarchy h", inputs, key)
    inputs = {"h": 0, "n": 0xFFFFFF, "e_n": 0xFFFFFF, "kid": "ff" * 8, "root": "00" * 32}
    key = F("z1", SITE, b"\x00" + b"\xff" * 14, bytes(32))
    put("pad-limits", "pad with the highest numbers", inputs, key)
    for suite in (1, 2):
        r = roots(16, 5, suite)
        inputs = {"suite": suite, "label": 16, "epoch": 5, "r": r.r.hex()}
        put(f"topic-suite{suite}", "topic key EK", inputs, r.ek(SITE))
        inputs = {"suite": suite, "label": 16, "epoch": 5, "inst": 9, "ek": r.ek(SITE).hex()}
        put(f"outer-suite{suite}", "outer key O from EK", inputs, r.outer(SITE, 9))
        inputs = {
            "suite": suite,
            "sender": 7,
            "boot": 41,
            "salt": salt.hex(),
            "r_bar": r.r_bar.hex(),
        }
        put(f"inner-suite{suite}", "inner key I", inputs, r.inner(SITE, 7, 41, salt))
        to = Grant(suite=suite)
        inputs = {"suite": suite, "grant": to.number, "epoch": to.epoch, "inst": 9}
        inputs["g"] = to.g.hex()
        put(f"grant-suite{suite}", "grant key", inputs, to.outer(SITE, 9))
    for use, suite in ((1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (3, 2)):
        inputs = {"use": use, "suite": suite, "mediator": 1, "boot": 41, "salt": salt.hex()}
        key = link_key(SITE, use, suite, 1, 41, salt, km)
        what = f"link key, use {use}, suite {suite}"
        put(f"link-use{use}-suite{suite}", what, {**inputs, "km": km.hex()}, key)
    inputs = {"suite": ROOT.suite, "label": 16, "epoch": 5, "r_bar": ROOT.r_bar.hex()}
    put("record", "record key", inputs, ROOT.record_key(SITE))
    for d, suite in ((0, 1), (1, 1), (0, 2), (1, 2)):
        inputs = {"suite": suite, "dir": d, "n_c": n_c.hex(), "ps": ps.hex()}
        key = F("p1", SITE, u(16 * d + suite, 1) + n_c, ps)
        put(f"provisioning-suite{suite}-dir{d}", "provisioning key", inputs, key)
    for suite in (1, 2):
        inputs = {"suite": suite, "n_c": n_c.hex(), "ps": ps.hex()}
        key = F("t1", SITE, u(16 + suite, 1) + n_c, ps)
        put(f"time-suite{suite}", "key of KG time", inputs, key)


# (plaintext bytes, associated data bytes): around blocks of 16 and 64, and where CCM's first block
# of associated data (14 bytes behind its length) ends.
_SIZES = ((0, 14), (0, 1100), (1, 15), (16, 0), (17, 30), (63, 13), (64, 64), (65, 31), (300, 40))


def _aead(c: Cases) -> None:
    nonce = rnd("nonce", 12)
    for suite in (1, 2):
        key = rnd(f"cipher {suite}", 32)
        for n, a in _SIZES:
            plain, aad = rnd(f"plain {n}", n), rnd(f"aad {a}", a)
            inputs = {"suite": suite, "key": key.hex(), "nonce": nonce.hex(), "aad": aad.hex()}
            inputs["sealed"] = seal(suite, key, nonce, plain, aad).hex()
            name = f"aead-suite{suite}-{n}-{a}"
            what = f"{n} bytes sealed with {a} bytes of associated data"
            flips = ("sealed", "nonce") if a == 0 or a > 100 else ("sealed", "nonce", "aad")
            c.good(name, "1.2", what, "aead", inputs, {"plain": plain.hex()}, *flips)
        plain, aad = rnd("plain 40", 40), rnd("aad 20", 20)
        sealed = seal(suite, key, nonce, plain, aad)
        base = {"suite": suite, "key": key.hex(), "nonce": nonce.hex(), "aad": aad.hex()}
        other = seal(3 - suite, key, nonce, plain, aad)
        swapped = sealed[16:32] + sealed[:16] + sealed[32:]
        bad = {
            "cut-tag": ("last byte of the tag is missing", sealed[:-1]),
            "zero-tag": ("tag of zeros", sealed[:-16] + bytes(16)),
            "other-suite": ("sealed with the other suite under the same key", other),
            "blocks-swapped": ("two blocks of ciphertext in the other order", swapped),
            "longer": ("a zero byte behind the tag", sealed + b"\x00"),
        }
        for name, (what, data) in bad.items():
            case = {**base, "sealed": data.hex()}
            c.bad(f"aead-suite{suite}-{name}", "1.2", what, "aead", case, "unauthentic")


def _enrolment(c: Cases) -> None:
    sensor = client()
    good: Json = {
        "sealmq": 1,
        "site": SITE.hex(),
        "client": 7,
        "name": "sensor",
        "ps": sensor.ps.hex(),
        "suite": 2,
        "mediator": {"number": 1, "host": "127.0.0.1", "port": 1883},
    }
    out = {"site": SITE.hex(), "client": 7, "mediator": 1, "suite": 2, "ps": sensor.ps.hex()}
    c.good("enrolment", "7.1", "an enrolment file", "enrolment", {"file": good}, out)
    for name, what, change, refuse in (
        ("ps-31", "ps of 31 bytes", {"ps": "00" * 31}, "misuse"),
        ("ps-33", "ps of 33 bytes", {"ps": "00" * 33}, "misuse"),
        ("ps-empty", "an empty ps", {"ps": ""}, "misuse"),
        (
            "ps-passphrase",
            "ps is a passphrase",
            {"ps": "correct horse battery staple"},
            "malformed",
        ),
        ("site-3", "site of 3 bytes", {"site": "000102"}, "malformed"),
        ("other-protocol", "another protocol version", {"sealmq": 2}, "malformed"),
        ("no-mediator", "no mediator", {"mediator": None}, "malformed"),
    ):
        inputs = {"file": {**good, **change}}
        c.bad(f"enrolment-{name}", "1.1, 7.1", what, "enrolment", inputs, refuse)


def add(c: Cases) -> None:
    """All cases of this file."""
    for group in (_keys, _aead, _enrolment):
        group(c)
