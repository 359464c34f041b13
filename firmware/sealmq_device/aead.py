# The AEAD suites of SealMQ on MicroPython, behind the port that sealmq_spec.aead describes.
# A backend is imported when a key of its suite is first made: viper code takes memory.
_TYPING = False
if _TYPING:
    from typing import Any

CCM = 1
CHACHA = 2
_backends: "dict[int, Any]" = {}  # an import statement costs 15,000 instructions each time it runs


# key: 32 bytes. ValueError for a suite that does not exist, or a key of another length.
def make(suite: int, key: bytes) -> "Any":
    return (_backends.get(suite) or _backend(suite))(key)


def _backend(suite: int) -> "Any":
    found: "Any"
    if suite == CCM:
        from .ccm import Ccm as found
    elif suite == CHACHA:
        from .chacha import ChaCha as found
    else:
        raise ValueError("suite %r: there are 1 (AES-256-CCM) and 2 (ChaCha20-Poly1305)" % (suite,))
    _backends[suite] = found
    return found
