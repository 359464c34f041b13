# base64url in place: a CONNECT has 54 characters of it, which cost 12,000 instructions in
# interpreted steps and 2,000 here.
import micropython

_chars = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

_TYPING = False
if _TYPING:
    from typing import Any as object

    from viper_types import ptr8


# As sealmq_spec.b64.put_b64u, without a look at the buffer's length.
@micropython.viper
def put_b64u(buf: object, at: int, n: int) -> object:
    p = ptr8(buf)
    t = ptr8(_chars)
    p[at + n] = 0  # what the last character has more bits than bytes are left for
    # From the end: what is written never reaches what is still to be read.
    d = (n * 4 + 2) // 3
    while d:
        d -= 1
        s = at + (d * 3 >> 2)
        p[at + d] = t[(p[s] << 8 | p[s + 1]) >> 10 - (d * 6 & 7) & 63]
