"""A fault of a policy family's own code, told as that family's: which one, what, and where."""

from __future__ import annotations

from traceback import walk_tb

import sealmq.families

from .api import FamilyError

HINT = (
    "mend that folder of sealmq/families, or take {name} out of [policy] order; SEALMQ_DEBUG=1 "
    "shows the whole trace"
)


class BrokenFamily(FamilyError):
    """A family's own code has raised what nobody expects."""

    def __init__(self, name: str, what: str, error: BaseException) -> None:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        text = f"the policy family {name!r} fails at {what}: {said}"
        super().__init__(name, text + _within(place(error)[1]), HINT.format(name=name))


def place(error: BaseException) -> tuple[str, str]:
    """The family in whose code it was raised, or in what that called, and FILE:LINE there. Two
    empty texts: in none's.
    """
    frames: list[tuple[str, int | None]] = [
        (frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)
    ]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((error.filename, error.lineno))
    for filename, line in reversed(frames):
        for folder in sealmq.families.__path__:
            inside = filename.removeprefix(f"{folder.rstrip('/')}/")
            family, slash, _ = inside.partition("/")
            if inside != filename and slash:
                return family, f"families/{inside}:{line}"
    return "", ""


def shown(error: BaseException) -> str:
    """Its type and place, for a record: not what it says, which may be what a client has sent."""
    return type(error).__name__ + _within(place(error)[1])


def of_family(error: BaseException, what: str = "work") -> FamilyError | None:
    """The error as a family's, if it was raised in the code of one."""
    if isinstance(error, FamilyError):
        return error
    name, _ = place(error)
    return BrokenFamily(name, what, error) if name else None


def _within(where: str) -> str:
    return f" ({where})" if where else ""
