"""Published vectors of AES-256-CCM and ChaCha20-Poly1305, through every cipher backend there is.

CPython has the gateway's; MicroPython, 64-bit and 32-bit, the device's: in viper, and what
stands in where there is none. The numbers are checked, so that a
package with fewer vectors fails instead of passing with less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import published
from aead_cases import CCM, CHACHA, PLAIN, Case, run
from published import FORGED, NO_NONCE, VALID, Source, Tally, Vector
from real_micropython import BITS, VIPER
from sealmq.aead import make

# Valid, forged (Wycheproof has 78 and 316 of both in our sizes), refused for the nonce; excluded.
# Each sums up to what the file holds.
NUMBERS: dict[str, tuple[Callable[[], Source[Vector]], tuple[int, int, int], dict[str, int]]] = {
    "wycheproof-ccm": (
        published.wycheproof_ccm,
        (51, 27, 13),
        {published.KEY: 368, published.NONCE: 36, published.TAG: 57},
    ),
    "wycheproof-chacha": (published.wycheproof_chacha, (256, 60, 9), {}),
    "nist-ccm": (published.nist_ccm, (10, 0, 0), {published.NONCE: 60}),
    "boringssl-chacha": (published.boringssl_chacha, (66, 0, 0), {}),
    "openssl-chacha": (published.openssl_chacha, (4, 1, 0), {}),
}
BACKENDS = {
    CCM: {"viper": CCM, "plain": CCM + PLAIN},
    CHACHA: {"viper": CHACHA, "plain": CHACHA + PLAIN},
}

each_source = pytest.mark.parametrize("which", NUMBERS)


def read(which: str) -> Source[Vector]:
    """The vectors, as many as there must be."""
    reader, numbers, excluded = NUMBERS[which]
    source = reader()
    verdicts = Counter(vector.verdict for vector in source.vectors)
    assert tuple(verdicts[verdict] for verdict in (VALID, FORGED, NO_NONCE)) == numbers
    assert source.excluded == excluded
    return source


def calls(vectors: list[Vector], suite: int) -> tuple[list[Case], list[tuple[str, bytes]]]:
    """The calls that the vectors make, and what each must give: its answer and its buffer."""
    cases, expected = [], []
    for v in vectors:
        n = len(v.plaintext)
        clear = v.plaintext + bytes(16)
        opening = Case("open", suite, v.key, v.nonce, v.aad, v.sealed, 0, n)
        sealing = Case("seal", suite, v.key, v.nonce, v.aad, clear, 0, n)
        if v.verdict == VALID:
            cases += [opening, sealing]
            expected += [("True", v.plaintext + v.sealed[n:]), ("None", v.sealed)]
        elif v.verdict == FORGED:
            cases.append(opening)
            expected.append(("False", bytes(n) + v.sealed[n:]))
        else:
            # Some have a short tag: 16 bytes of room, so that the nonce alone is wrong.
            cases += [Case("open", suite, v.key, v.nonce, v.aad, clear, 0, n), sealing]
            expected += [("ValueError", clear)] * 2
    return cases, expected


@each_source
@pytest.mark.parametrize("bits", BITS)
def test_on_micropython(bits: int, which: str, tmp_path: Path, tally: Tally) -> None:
    source = read(which)
    backends = BACKENDS[source.vectors[0].suite]
    names = [name for name in backends if name == "plain" or bits in VIPER]
    for name in names:
        cases, expected = calls(source.vectors, backends[name])
        assert run(bits, cases, tmp_path) == expected, name
    tally(source, f"MicroPython {bits}", *names)


def gateway(case: Case) -> tuple[str, bytes]:
    """What the gateway's backend does to a call."""
    aead = make(case.suite, case.key)
    buf = bytearray(case.buf)
    call = aead.seal_into if case.op == "seal" else aead.open_into
    try:
        got = str(call(case.nonce, case.aad, buf, case.start, case.n))
    except Exception as error:
        got = type(error).__name__
    return got, bytes(buf)


@each_source
def test_on_cpython(which: str, tally: Tally) -> None:
    source = read(which)
    cases, expected = calls(source.vectors, source.vectors[0].suite)
    assert [gateway(case) for case in cases] == expected
    # The mediator's calls on bytes.
    for v in source.vectors:
        aead = make(v.suite, v.key)
        if v.verdict == NO_NONCE:
            with pytest.raises(ValueError, match=r"(?i)nonce"):
                aead.open(v.nonce, v.sealed.ljust(16, b"\0"), v.aad)
        else:
            valid = v.verdict == VALID
            assert aead.open(v.nonce, v.sealed, v.aad) == (v.plaintext if valid else None)
            assert not valid or aead.seal(v.nonce, v.plaintext, v.aad) == v.sealed
    tally(source, "CPython")
