"""AES of the interpreter's C library, in the processor's own instructions or in software.

mbedTLS asks the processor when it runs. A copy of its library whose question is always answered
with no does AES, and what GCM multiplies, in C: for cryptolib and for TLS alike, all else being
the same interpreter. That is what a chip without an AES accelerator does.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

from count import CountError, interpreter

_LIBRARY = "libmbedcrypto.so.16"
_QUESTION = b"mbedtls_aesni_has_support"
_NO = b"\x31\xc0\xc3"  # xor eax, eax; ret
_X86_64 = 62
_DYNSYM = 11
# A block passes through the first, and there through one of the others.
_BLOCK, _BLOCK_COST = "mbedtls_aes_crypt_ecb", {True: 27, False: 26}
_IN_SOFTWARE = frozenset(("mbedtls_internal_aes_encrypt", "mbedtls_internal_aes_decrypt"))
_IN_HARDWARE = frozenset(("mbedtls_aesni_crypt_ecb", "mbedtls_aesni_gcm_mult"))


def without_instructions(home: Path, folder: Path) -> Path:
    """A home for count.py in `folder`, of the interpreter at `home`. Raises CountError."""
    argv = interpreter(home)
    at = argv.index("--library-path") + 1
    made = folder / "64"
    made.mkdir(parents=True)
    library = bytearray((Path(argv[at]) / _LIBRARY).read_bytes())
    where = _function(bytes(library), _QUESTION)
    library[where : where + len(_NO)] = _NO
    (made / _LIBRARY).write_bytes(library)
    argv[at] = f"{made}:{argv[at]}"
    (made / "stamp.json").write_text(json.dumps({"argv": argv}), encoding="utf-8")
    return folder


def _function(library: bytes, name: bytes) -> int:
    """Where its code stands in the file of an ELF library."""
    if library[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", library, 18)[0] != _X86_64:
        raise CountError("AES in software is measured on x86-64 only")
    sections_at, count = (
        struct.unpack_from("<Q", library, 0x28)[0],
        struct.unpack_from("<H", library, 0x3C)[0],
    )
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", library, sections_at + 64 * i) for i in range(count)
    ]
    symbols = next(section for section in sections if section[1] == _DYNSYM)
    names = sections[symbols[6]][4]
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        of, _, _, section, address, _ = struct.unpack_from("<IBBHQQ", library, at)
        if library[names + of : names + of + len(name) + 1] == name + b"\0" and section:
            return int(address - sections[section][3] + sections[section][4])
    raise CountError(f"{_LIBRARY} has no {name.decode()}: nothing tells it to do AES in software")


def check_aes(functions: Mapping[str, int], software: bool) -> None:
    """CountError unless a run did AES in that way alone."""
    wrong = functions.keys() & (_IN_HARDWARE if software else _IN_SOFTWARE)
    if wrong:
        raise CountError(f"AES was to be in {_where(software)}, and {min(wrong)} ran")
    if not functions.keys() & (_IN_SOFTWARE if software else _IN_HARDWARE):
        raise CountError(f"AES was to be in {_where(software)}, and none was done there")


def _where(software: bool) -> str:
    return "software" if software else "the processor's instructions"


def blocks(functions: Mapping[str, int], software: bool) -> int:
    """AES blocks of a run."""
    return functions.get(_BLOCK, 0) // _BLOCK_COST[software]
