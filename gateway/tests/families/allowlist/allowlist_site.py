"""The factory with rules: an engine with labels and allowlist, and short ways to ask it."""

from __future__ import annotations

from families.factory import FACTORY, Site
from sealmq.families.allowlist.family import Allowlist
from sealmq.families.engine import Decision

ORDER = '[policy]\norder = ["labels", "allowlist"]\n'


def toml(*rules: str, text: str = FACTORY) -> str:
    """Each rule: the lines of a [[families.allowlist.rule]]."""
    return text + ORDER + "".join(f"[[families.allowlist.rule]]\n{rule}\n" for rule in rules)


class Ruled(Site):
    """A site with these rules."""

    def __init__(self, *rules: str, text: str = FACTORY) -> None:
        super().__init__(toml(*rules, text=text), Allowlist())
        self.text = text

    def rule(self, *rules: str) -> None:
        """These rules from now on, by a reload."""
        self.reload(toml(*rules, text=self.text))

    def read(self, client: str, topic: str) -> Decision:
        return self.deliver(client, topic, self.labels.label_of(topic) or "bottom")

    def take(self, client: str, filt: str) -> Decision:
        """Subscribe; when it is allowed the broker accepts it."""
        got = self.subscribe(client, filt)
        if got.allow:
            self.conn(client).subscribed(got, 0, self.now)
        return got


def said(got: Decision) -> str:
    """The family's own rule; a denial is said with a !."""
    vote = next(v for v in got.votes if v.family == "allowlist")
    return ("" if got.allow else "!") + vote.rule.removeprefix("allowlist.")
