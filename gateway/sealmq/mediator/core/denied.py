"""A refusal that names its rule: one of a family, or of the mediator itself."""

from __future__ import annotations

from sealmq_spec.errors import Denied


class DeniedByRule(Denied):
    """`rule` goes into the audit record and, where there is a link, into the notice."""

    def __init__(self, reason: str, rule: str) -> None:
        super().__init__(reason)
        self.rule = rule
