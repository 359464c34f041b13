# Typed refusals. `code` is the notice class of SPEC.md 4.4; text says what arrived and what would
# have been right.


class SealError(Exception):
    code = 0
    # Of the notice that told it, if one did.
    ctr = 0
    rule = ""
    reason = ""
    # Of a NoKey: whose roots are missing, which records may bring (SPEC.md 4.4, op 0x83).
    label = 0


class Malformed(SealError):
    code = 1


class Unauthentic(SealError):
    code = 2


class Stale(SealError):
    code = 3


class Replay(SealError):
    code = 4


class Denied(SealError):
    code = 5


class WrongEpoch(SealError):
    code = 6


class Unavailable(SealError):
    code = 7


class TooLarge(SealError):
    code = 8


class RateLimited(SealError):
    code = 9


class Unsupported(SealError):
    code = 10


# A reader has no record that opens this label and epoch. Not an attack: its label may be too low.
class NoKey(SealError):
    code = 5


# We misused the library (wrong order, wrong type of argument); the peer did nothing wrong.
class Misuse(SealError):
    code = 0


_BY_CODE = (
    SealError,
    Malformed,
    Unauthentic,
    Stale,
    Replay,
    Denied,
    WrongEpoch,
    Unavailable,
    TooLarge,
    RateLimited,
    Unsupported,
)


# The error that a notice (what, ctr, code, rule, reason) means, with `ctr`, `rule` and `reason`.
def from_notice(said: "tuple[int, int, int, str, str]") -> SealError:
    _, ctr, code, rule, reason = said
    error = _BY_CODE[code if code < len(_BY_CODE) else 0]("%s (rule %s)" % (reason, rule))
    error.ctr, error.rule, error.reason = ctr, rule, reason
    return error
