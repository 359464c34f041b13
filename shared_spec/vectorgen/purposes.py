"""The texts of PURPOSES.md P2, one character at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

WORDS: Mapping[str, str] = {
    "reserve": "!RESERVE",
    "ap": "!AP",
    "pbac": "!PBAC",
    "presub": "PRESUB",
    "set": "SET",
    "get": "GET",
    "mode": "MODE",
    "reservations": "RESERVATIONS",
    "eip": "EIP",
    "presubs": "PRESUBS",
    "hash": "HASH",
    "plus": "PLUS",
    "open": "{",
    "close": "}",
    "bar": "|",
    "comma": ",",
    "escape": "%",
}
SEPARATORS = ("open", "close", "bar", "comma")


class Texts:
    """Writes them; `words`: those of the canonical form."""

    words = WORDS

    @property
    def special(self) -> set[str]:
        """The characters that are escaped."""
        return {*"#+", self.words["escape"]}.union(*(self.words[s] for s in SEPARATORS))

    def escaped(self, char: str) -> str:
        """A character as it stands where it separates nothing."""
        return "".join(f"{self.words['escape']}{byte:02X}" for byte in char.encode())

    def name(self, text: str) -> str:
        """A name or a purpose."""
        return "".join(self.escaped(c) if c in self.special else c for c in text)

    def filter(self, filt: str) -> str:
        """A filter or topic, level by level."""
        levels = []
        for level in filt.split("/"):
            if level in (self.words["hash"], self.words["plus"]):
                levels.append(self.escaped(level[0]) + level[1:])
            else:
                levels.append(self.name(level))
        return "/".join(levels)

    def braced(self, head: Iterable[str], inside: str) -> str:
        """Levels, and what stands in the braces behind them."""
        return "/".join(head) + self.words["open"] + inside + self.words["close"]

    def several(self, purposes: Iterable[str]) -> str:
        """Purposes in a row."""
        return self.words["comma"].join(self.name(p) for p in purposes)

    def access(self, filt: str, purpose: str) -> str:
        """A subscription for a purpose."""
        return self.braced((self.words["ap"], self.filter(filt)), self.name(purpose))

    def reserve(self, filt: str, aip: Iterable[str] = (), pip: Iterable[str] = ()) -> str:
        """A reservation."""
        inside = self.several(aip) + self.words["bar"] + self.several(pip)
        return self.braced((self.words["reserve"], self.filter(filt)), inside)

    def release(self, filt: str) -> str:
        """The end of one."""
        return self.braced((self.words["reserve"], self.filter(filt)), "")

    def presubscribe(self, client: str, filt: str, purpose: str = "") -> str:
        """A purpose for a client's subscriptions to come."""
        head = (self.words["pbac"], self.words["presub"], self.name(client), self.filter(filt))
        return self.braced(head, self.name(purpose))

    def setting(self, name: str, value: str = "") -> str:
        """A setting."""
        return self.braced(
            (self.words["pbac"], self.words["set"], self.name(name)), self.name(value)
        )

    def query(self, what: str, arg: str = "") -> str:
        """A question."""
        head = [self.words["pbac"], self.words["get"], self.words[what]]
        if what != "mode":
            head.append(self.name(arg) if what == "presubs" else self.filter(arg))
        return self.braced(head, "")
