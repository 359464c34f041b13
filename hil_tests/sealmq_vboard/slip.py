"""SLIP frames, as the ROM loader has them: C0 … C0, with DB DC for C0 and DB DD for DB within.

Sans-IO, and no loop over single bytes: whole frames are cut and unescaped by bytes methods.
"""

from __future__ import annotations

END = b"\xc0"
_ESCAPED_END = b"\xdb\xdc"
_ESCAPE = b"\xdb"
_ESCAPED_ESCAPE = b"\xdb\xdd"


def frame(data: bytes) -> bytes:
    return END + data.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(END, _ESCAPED_END) + END


def _unescape(data: bytes) -> bytes | None:
    """The frame's content, or None if an escape is none."""
    if _ESCAPE not in data:
        return data
    first, *rest = data.split(_ESCAPE)
    parts = [first]
    for piece in rest:
        mark = piece[:1]
        if mark == b"\xdc":
            parts.append(END)
        elif mark == b"\xdd":
            parts.append(_ESCAPE)
        else:
            return None
        parts.append(piece[1:])
    return b"".join(parts)


class Reader:
    """Bytes in, whole frames out. What stands outside of frames is dropped."""

    def __init__(self, most: int) -> None:
        self.most = most  # a longer frame is dropped, so that memory has a bound
        self._parts: list[bytes] = []
        self._length = 0
        self._inside = False
        self.dropped = 0

    def feed(self, data: bytes) -> list[bytes]:
        found: list[bytes] = []
        pieces = data.split(END)
        self._take(pieces[0])
        for piece in pieces[1:]:
            # An END: of a frame if something stands before it, else the beginning of one. The ROM
            # too takes an END after an END as a beginning.
            if self._inside and self._length:
                whole = _unescape(b"".join(self._parts))
                if whole is None or self._length > self.most:
                    self.dropped += 1
                else:
                    found.append(whole)
                self._inside = False
            else:
                self._inside = True
            self._parts = []
            self._length = 0
            self._take(piece)
        return found

    def _take(self, piece: bytes) -> None:
        if not self._inside or not piece:
            return
        self._length += len(piece)
        if self._length <= self.most:
            self._parts.append(piece)
        else:
            self._parts = []
