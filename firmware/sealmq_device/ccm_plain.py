# AES-256-CCM for an interpreter without viper (64-bit ARM hosts), in pieces; as ccm.py, which is
# for boards.
from cryptolib import aes
from micropython import const

from .aead import refuse

_PIECE = const(1024)  # whole blocks


class Ccm:
    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError("a key has 32 bytes")
        self._key = bytes(key)

    def seal_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> None:
        end = start + n
        buf[end : end + 16] = self._crypt(nonce, aad, buf, start, n, False)

    def open_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> bool:
        if differ(self._crypt(nonce, aad, buf, start, n, True), buf, start + n):
            wipe(buf, start, n)
            return False
        return True

    # Encrypts or decrypts in place. Gives the tag.
    def _crypt(
        self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int, opening: bool
    ) -> bytes:
        check(nonce, aad, buf, start, n)
        ecb = aes(self._key, 1)
        cbc = aes(self._key, 2, bytes(16))
        first = (b"\x7a" if aad else b"\x3a") + nonce + n.to_bytes(3, "big")
        if aad:
            first += len(aad).to_bytes(2, "big") + aad
        mac = cbc.encrypt(_padded(first))
        view = memoryview(buf)
        for at in range(0, n, _PIECE):
            piece = view[start + at : start + min(at + _PIECE, n)]
            text = bytes(piece)
            i = 1 + (at >> 4)
            blocks = range(i, i + (len(text) + 15 >> 4))
            stream = b"".join(b"\x02" + nonce + j.to_bytes(3, "big") for j in blocks)
            piece[:] = xor(text, ecb.encrypt(stream))
            mac = cbc.encrypt(_padded(bytes(piece) if opening else text))
        return xor(mac[-16:], ecb.encrypt(b"\x02" + nonce + bytes(3)))


# ValueError when a length is wrong.
def check(nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> None:
    room = len(buf) - 16 - start
    if start < 0 or not 0 <= n <= room or n > 0xFFFFFF or len(aad) > 65279 or len(nonce) != 12:
        refuse(nonce, aad, buf, start, n)


def _padded(text: bytes) -> bytes:
    return text + bytes(-len(text) & 15)


# As one big integer; of the stream so much as there is text.
def xor(text: bytes, stream: bytes) -> bytes:
    n = len(text)
    word = int.from_bytes(text, "big") ^ int.from_bytes(stream[:n], "big")
    return word.to_bytes(n, "big")


# Constant-time: 0 when the 16 bytes of `tag` stand at buf[at:].
def differ(tag: bytes, buf: bytearray, at: int) -> int:
    d = 0
    for i in range(16):
        d |= tag[i] ^ buf[at + i]
    return d


# buf[start:start+n] = zeros.
def wipe(buf: bytearray, start: int, n: int) -> None:
    for i in range(start, start + n):
        buf[i] = 0
