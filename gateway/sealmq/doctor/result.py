"""What a try came to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sealmq.broker.errors import BrokerError
from sealmq.families.faults import of_family
from sealmq_spec.errors import SealError

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

    def to_json(self) -> dict[str, Any]:
        """A row of `--json`."""
        return asdict(self)


# A try says why it is well, or raises Failed with what it found.
Try = Callable[[], Awaitable[str]]


class Failed(Exception):
    """What must fail has succeeded."""


class Untried(Exception):
    """It cannot be tried from here."""


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
