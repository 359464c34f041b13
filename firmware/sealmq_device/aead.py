# The AEAD suites of SealMQ on MicroPython, behind the port that sealmq_spec.aead describes.
#
# A backend is imported when a key of its suite is first made (viper code takes memory) and kept (an
# import takes 12,000 instructions even when the module is loaded). Where the interpreter has no
# viper (64-bit ARM hosts) or too short branches for ours (Cortex-M0), a plain one stands in.
_TYPING = False
if _TYPING:
    from typing import Any

_NO_VIPER = (SyntaxError, NotImplementedError)

CCM = 1
CHACHA = 2

_backends: "dict[int, Any]" = {}


# key: 32 bytes. ValueError for a suite that does not exist, or a key of another length.
def make(suite: int, key: bytes) -> "Any":
    try:
        return _backends[suite](key)
    except KeyError:
        _backends[suite] = _load(suite)
        return _backends[suite](key)


def _load(suite: int) -> "Any":
    if suite == CCM:
        try:
            from .ccm import Ccm

            return Ccm
        except _NO_VIPER:
            from .ccm_plain import Ccm as PlainCcm

            return PlainCcm
    if suite == CHACHA:
        try:
            from .chacha import ChaCha

            return ChaCha
        except _NO_VIPER:
            from .chacha_plain import ChaCha as PlainChaCha

            return PlainChaCha
    raise ValueError("suite %r: there are 1 (AES-256-CCM) and 2 (ChaCha20-Poly1305)" % (suite,))


# Of the backends: a length is wrong.
def refuse(nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> None:
    raise ValueError(
        "nonce %d (12), associated data %d, buffer %d, start %d, n %d: too short or too long"
        % (len(nonce), len(aad), len(buf), start, n)
    )
