"""What an assertion may let somebody do: the paper's six actions (2.2), and EMERGENCY for
break-glass. ADD_ASSERT is another word for CHANGE_POLICY (Fig. 7, rule 4).
"""

from __future__ import annotations

from collections.abc import Iterable

AUTHENTICATE, ADVERTISE, PUBLISH, SUBSCRIBE, RECEIVE, CHANGE_POLICY, EMERGENCY = (
    1 << n for n in range(7)
)
MASKS = {
    "AUTHENTICATE": AUTHENTICATE,
    "ADVERTISE": ADVERTISE,
    "PUBLISH": PUBLISH,
    "SUBSCRIBE": SUBSCRIBE,
    "RECEIVE": RECEIVE,
    "CHANGE_POLICY": CHANGE_POLICY,
    "EMERGENCY": EMERGENCY,
}
NAMES = {mask: name for name, mask in MASKS.items()}
ALL_ACTIONS = sum(MASKS.values())


def action_named(word: str) -> str | None:
    """Its one name, or None: there is no such action."""
    name = word.strip().upper().replace(" ", "_").replace("-", "_")
    name = "CHANGE_POLICY" if name == "ADD_ASSERT" else name
    return name if name in MASKS else None


def words(mask: int) -> list[str]:
    """The names of several."""
    return [name for name, one in MASKS.items() if mask & one]


def mask_of(names: Iterable[str]) -> int:
    """Of names that there are."""
    return sum({MASKS[name] for name in names})
