"""The part of the key generator: one grant that no client holds. Under it mediators seal what the
broker and other readers must not see: sealed attributes, and events of matching_set.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..api import Policy

GRANT = "mediators"


def grants(config: Policy) -> Mapping[str, Collection[str]]:
    """Always there: types with sealed attributes come by command, too."""
    return {GRANT: []}
