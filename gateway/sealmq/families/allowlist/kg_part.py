"""Who holds the family's grants: of each group (`sealed_for` of a rule) those whom the rule is
about. The key generator alone loads this.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..api import Policy
from .settings import read


def grants(config: Policy) -> Mapping[str, list[str]]:
    """Each group with its clients."""
    return {
        rule.sealed_for: [
            name
            for name, client in config.clients.items()
            if rule.about(name, client.label, client.kind)
        ]
        for rule in read(config)
        if rule.sealed_for
    }
