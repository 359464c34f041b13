"""What a try came to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sealmq.broker.errors import BrokerError
from sealmq.families.faults import of_family
from sealmq_spec.errors import SealError

from .cures import CURES, TITLES
from .errors import Broken


@dataclass(frozen=True, slots=True)
class Result:
    """One try.

    ok: True, it holds: what must fail has failed; False: what must fail has succeeded; None: it
    could not be tried, which says nothing.
    """

    name: str
    ok: bool | None
    reason: str

    @property
    def word(self) -> str:
        """For people."""
        return {True: "holds ", False: "FAILED", None: "could not be tried:"}[self.ok]

    def to_json(self) -> dict[str, Any]:
        """A row of `--json`."""
        return asdict(self)


# A try says why it is well, or raises Failed with what it found.
Try = Callable[[], Awaitable[str]]


class Failed(Exception):
    """What must fail has succeeded."""


class Untried(Exception):
    """It cannot be tried from here."""


class Unclear(Exception):
    """It was tried, and shows nothing."""


@dataclass(frozen=True, slots=True)
class Finding(Result):
    """A try at somebody's broker. rule: of cures.py; who: the account; tried: whether it was.

    `ok` is None where it was not tried, and where it could not be told.
    """

    rule: str
    who: str
    tried: bool

    @classmethod
    def of(cls, rule: str, who: str, came: str | Exception) -> Finding:
        """Of a try that came to this: why it is well, or what it raised."""
        title = TITLES[rule] + (f": {who}" if who else "")
        ok = True if isinstance(came, str) else False if isinstance(came, Failed) else None
        return cls(title, ok, str(came), rule, who, not isinstance(came, Untried))

    @property
    def word(self) -> str:
        """For people."""
        if self.ok is None:
            return "could not tell:" if self.tried else "not tried:"
        return "closed" if self.ok else "OPEN"

    def to_json(self) -> dict[str, Any]:
        """A row of `--json`; how it is closed where it is open."""
        closed = {"closed_by": CURES[self.rule]} if self.ok is False else {}
        return {**asdict(self), "result": self.word.rstrip(":").lower(), **closed}


def healthy(results: Iterable[Result]) -> bool | None:
    """Of a visit what `ok` is of a try: one that failed decides, then one that says nothing."""
    found = {result.ok for result in results}
    return False if False in found else None if None in found else True


async def attempt(name: str, work: Try) -> Result:
    """Run a try."""
    try:
        return Result(name, True, await work())
    except Failed as error:
        return Result(name, False, str(error))
    except Untried as error:
        return Result(name, None, str(error))
    except (Broken, BrokerError, SealError, OSError) as error:
        return Result(name, None, f"the try broke off: {error}")
    except Exception as error:
        return untried(name, error)


def untried(name: str, error: Exception) -> Result:
    """It could not be tried, since a policy family's code, or ours, has a defect."""
    told = of_family(error, "this try") or f"internal error, {type(error).__name__}: {error}"
    return Result(name, None, f"could not be tried: {told}")
