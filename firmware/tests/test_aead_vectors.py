"""Published vectors of AES-256-CCM and ChaCha20-Poly1305, opened and sealed by real MicroPython."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography_vectors import open_vector_file

from aead_cases import CCM, CHACHA, Case, run
from real_micropython import BITS

RFC_8439_2_8_2 = (
    "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6"
    "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36"
    "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
    "3ff4def08e4b7a9de576d26586cec64b6116"
    "1ae10b594f09e26a7e902ecbd0600691"
)


@dataclass(frozen=True)
class Vector:
    """What a publisher printed; `sealed` is ciphertext and tag, `valid` whether it opens."""

    key: bytes
    nonce: bytes
    aad: bytes
    plaintext: bytes
    sealed: bytes
    valid: bool = True


def nist_ccm() -> Iterator[Vector]:
    """The cases of SP 800-38C's validation suite that have our sizes: VNT256, 12-byte nonces."""
    with open_vector_file("ciphers/AES/CCM/VNT256.rsp", "r") as file:
        text = file.read()
    assert {"Plen = 24", "Tlen = 16"} <= set(text.splitlines())
    key = b""
    for block in text.split("[Nlen = 12]")[1].split("[Nlen")[0].split("\n\n"):
        fields = dict(re.findall(r"^(\w+) = ([0-9a-f]+)$", block, re.MULTILINE))
        if "Key" in fields:
            key = bytes.fromhex(fields["Key"])
        elif fields:
            nonce, aad, plaintext, sealed = (
                bytes.fromhex(fields[name]) for name in ("Nonce", "Adata", "Payload", "CT")
            )
            yield Vector(key, nonce, aad, plaintext, sealed)


def ietf_chacha() -> Iterator[Vector]:
    """RFC 8439's example, then BoringSSL's and OpenSSL's cases; one of them is forged."""
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the "
        b"future, sunscreen would be it."
    )
    nonce = bytes.fromhex("070000004041424344454647")
    aad = bytes.fromhex("50515253c0c1c2c3c4c5c6c7")
    yield Vector(bytes(range(0x80, 0xA0)), nonce, aad, text, bytes.fromhex(RFC_8439_2_8_2))
    names = {"NONCE": "IV", "AD": "AAD", "IN": "PLAINTEXT", "CT": "CIPHERTEXT"}
    for name in ("boringssl", "openssl"):
        with open_vector_file(f"ciphers/ChaCha20Poly1305/{name}.txt", "r") as file:
            blocks = file.read().split("\n\n")
        for block in blocks:
            lines = [line.partition("=") for line in block.splitlines() if "=" in line]
            raw = {label.strip().upper(): text.strip() for label, _, text in lines}
            if "KEY" in raw:
                fields = {names.get(label, label): text for label, text in raw.items()}
                key, nonce, aad, plaintext, ciphertext, tag = (
                    _value(fields.get(field, ""))
                    for field in ("KEY", "IV", "AAD", "PLAINTEXT", "CIPHERTEXT", "TAG")
                )
                valid = "RESULT" not in fields
                yield Vector(key, nonce, aad, plaintext, ciphertext + tag, valid)


def _value(text: str) -> bytes:
    return text[1:-1].encode() if text.startswith('"') else bytes.fromhex(text)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(
    ("suite", "published", "number"),
    [(CCM, nist_ccm, 10), (CHACHA, ietf_chacha, 72)],
    ids=("ccm", "chacha"),
)
def test_published_vectors(
    bits: int, suite: int, published: Callable[[], Iterator[Vector]], number: int, tmp_path: Path
) -> None:
    vectors = list(published())
    assert len(vectors) == number
    calls, expected = [], []
    for v in vectors:
        n = len(v.plaintext)
        calls.append(Case("open", suite, v.key, v.nonce, v.aad, v.sealed, 0, n))
        opened = v.plaintext if v.valid else bytes(n)
        expected.append((str(v.valid), opened + v.sealed[n:]))
        if v.valid:
            calls.append(Case("seal", suite, v.key, v.nonce, v.aad, v.plaintext + bytes(16), 0, n))
            expected.append(("None", v.sealed))
    assert run(bits, calls, tmp_path) == expected
