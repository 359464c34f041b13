"""Published vectors of what AEADs and key schedule are made of: ChaCha20, Poly1305, SHA-256.

Beside them HKDF, which the gateway derives keys at rest with; the protocol has neither HKDF nor
HMAC (SPEC.md 2: one compression of SHA-256), and so RFC 4231 has nothing to run on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography_vectors import open_vector_file

from poly1305_cases import run as poly1305
from published import Source, Tally, text_blocks, wycheproof
from real_micropython import BITS, VIPER, micropython
from sealmq_spec import keys

XCHACHA = "a nonce of 24 bytes (XChaCha20)"
PAST_END = "a counter past its end, which no message of ours reaches"
PART = "a message of no whole blocks, which the AEAD has not"

# RFC 8439, 2.3.2: the block function alone; no package has it.
BLOCK = (
    "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
    "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
)


@dataclass(frozen=True)
class Stream:
    """ChaCha20 over a message, from a block counter on."""

    key: bytes
    counter: int
    nonce: bytes
    plaintext: bytes
    ciphertext: bytes


def rfc_chacha20() -> Source[Stream]:
    """RFC 8439's block function (2.3.2) and encryption (A.2, its first case is A.1's as well)."""
    source: Source[Stream] = Source("RFC 8439 ChaCha20")
    nonce = bytes.fromhex("000000090000004a00000000")
    source.vectors.append(Stream(bytes(range(32)), 1, nonce, bytes(64), bytes.fromhex(BLOCK)))
    for fields in text_blocks("ciphers/ChaCha20/rfc7539.txt"):
        key, nonce, plaintext, ciphertext = (
            bytes.fromhex(fields[name]) for name in ("KEY", "NONCE", "PLAINTEXT", "CIPHERTEXT")
        )
        counter = int(fields["INITIAL_BLOCK_COUNTER"])
        source.vectors.append(Stream(key, counter, nonce, plaintext, ciphertext))
    return source


def wycheproof_chacha20() -> Source[Stream]:
    """The counter close to its end."""
    source: Source[Stream] = Source("Wycheproof ChaCha20 counter")
    tests, said = wycheproof("chacha20_counter_test.json")
    assert len(tests) == said
    for group, test in tests:
        if group["ivSize"] != 96:
            source.excluded[XCHACHA] += 1
        elif test["result"] != "valid":
            source.excluded[PAST_END] += 1
        else:
            key, count, nonce, plaintext, ciphertext = (
                bytes.fromhex(test[name]) for name in ("key", "initialCounter", "iv", "msg", "ct")
            )
            counter = int.from_bytes(count, "little")
            source.vectors.append(Stream(key, counter, nonce, plaintext, ciphertext))
    return source


CHACHA20 = {
    "rfc": (rfc_chacha20, 4, {}),
    "wycheproof": (wycheproof_chacha20, 11, {XCHACHA: 28, PAST_END: 3}),
}


@pytest.mark.parametrize("which", CHACHA20)
@pytest.mark.parametrize("bits", BITS)
def test_chacha20(bits: int, which: str, tmp_path: Path, tally: Tally) -> None:
    read, number, excluded = CHACHA20[which]
    source = read()
    assert len(source.vectors) == number
    assert source.excluded == excluded
    names = [name for name in ("viper", "plain") if name == "plain" or bits in VIPER]
    for name in names:
        lines = [
            f"{name} {v.key.hex()} {v.counter + i} {v.nonce.hex()}"
            for v in source.vectors
            for i in range(len(v.plaintext) + 63 >> 6)
        ]
        blocks = iter(device(bits, lines, tmp_path))
        for v in source.vectors:
            stream = b"".join(next(blocks) for _ in range(len(v.plaintext) + 63 >> 6))
            got = bytes(p ^ k for p, k in zip(v.plaintext, stream, strict=False))
            assert got == v.ciphertext, (name, v)
    tally(source, f"MicroPython {bits}", *names)


@pytest.mark.parametrize("bits", VIPER)
def test_poly1305(bits: int, tmp_path: Path, tally: Tally) -> None:
    source: Source[tuple[bytes, bytes]] = Source("RFC 8439 Poly1305")
    tags = []
    for fields in text_blocks("poly1305/rfc7539.txt"):
        message = bytes.fromhex(fields["MSG"])
        if len(message) % 16:
            source.excluded[PART] += 1
        else:
            source.vectors.append((bytes.fromhex(fields["KEY"]), message))
            tags.append(bytes.fromhex(fields["TAG"]))
    assert len(source.vectors) == 8
    assert source.excluded == {PART: 3}
    assert poly1305(bits, source.vectors, tmp_path) == tags
    tally(source, f"MicroPython {bits}", "viper")


def nist_sha256() -> Iterator[tuple[bytes, bytes]]:
    """Messages and digests: NIST's short and long ones."""
    for name in ("ShortMsg", "LongMsg"):
        with open_vector_file(f"hashes/SHA2/SHA256{name}.rsp", "r") as file:
            text = file.read()
        for n, message, digest in re.findall(r"Len = (\d+)\nMsg = (\w+)\nMD = (\w+)", text):
            yield bytes.fromhex(message)[: int(n) // 8], bytes.fromhex(digest)


def test_sha256(tmp_path: Path, tally: Tally) -> None:
    source = Source("NIST SHA-256 short and long", list(nist_sha256()))
    digests = [digest for _, digest in source.vectors]
    assert len(digests) == 129
    lines = [f"{op} {m.hex() or '-'}" for op in ("sha", "pieces") for m, _ in source.vectors]
    for bits in BITS:
        assert device(bits, lines, tmp_path) == digests * 2
        tally(source, f"MicroPython {bits}")
    assert [keys.f(message[:2], message[2:]) for message, _ in source.vectors] == digests
    assert [hashlib.sha256(message).digest() for message, _ in source.vectors] == digests
    tally(source, "CPython")


def test_hkdf(tally: Tally) -> None:
    with open_vector_file("KDF/rfc-5869-HKDF-SHA256.txt", "r") as file:
        cases = [
            dict(re.findall(r"^(\w+) *= *(\w*)$", block, re.MULTILINE))
            for block in file.read().split("# A.")[1:]
        ]
    source = Source("RFC 5869 HKDF-SHA256", cases)
    assert len(cases) == 3
    for case in cases:
        salt, info, secret = (bytes.fromhex(case[name]) for name in ("salt", "info", "IKM"))
        kdf = HKDF(algorithm=SHA256(), length=int(case["L"]), salt=salt or None, info=info)
        assert kdf.derive(secret).hex() == case["OKM"]
    tally(source, "CPython")


def device(bits: int, lines: list[str], folder: Path) -> list[bytes]:
    """MicroPython's answers."""
    file = folder / "lines"
    file.write_text("".join(line + "\n" for line in lines))
    answers = micropython(bits, "primitives_device.py", file).split()
    assert len(answers) == len(lines)
    return [bytes.fromhex(answer) for answer in answers]
