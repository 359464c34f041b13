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
    s = at + n
    d = at + (n * 4 + 2) // 3
    rest = n % 3
    # From the end: what is written never reaches what is still to be read.
    if rest == 1:
        s -= 1
        d -= 2
        v = int(p[s])
        p[d] = t[v >> 2]
        p[d + 1] = t[(v & 3) << 4]
    elif rest == 2:
        s -= 2
        d -= 3
        v = int(p[s]) << 8 | int(p[s + 1])
        p[d] = t[v >> 10]
        p[d + 1] = t[v >> 4 & 63]
        p[d + 2] = t[(v & 15) << 2]
    while s > at:
        s -= 3
        d -= 4
        v = int(p[s]) << 16 | int(p[s + 1]) << 8 | int(p[s + 2])
        p[d] = t[v >> 18]
        p[d + 1] = t[v >> 12 & 63]
        p[d + 2] = t[v >> 6 & 63]
        p[d + 3] = t[v & 63]
