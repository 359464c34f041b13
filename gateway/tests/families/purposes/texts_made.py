"""Texts about purposes that mean to confuse, and what clients with other words write."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from purposes_made import accesses, commands, written
from sealmq_spec import purposes
from vectorgen.purposes import WORDS, Texts

# Other words: longer, not ASCII, of one letter, what looks like something else.
OTHER: list[dict[str, str]] = [
    {},
    {"reserve": "!R", "ap": "!P", "pbac": "!X", "hash": "H", "plus": "S"},
    {"open": "<<", "close": ">>", "bar": "--", "comma": "&", "escape": "~"},
    {"open": "«", "close": "»", "bar": "·", "comma": "¦", "hash": "älles", "plus": "温"},
    {
        "reserve": "!RESERVED", "ap": "!APS", "pbac": "!PBACS", "mode": "AP", "eip": "EIPS",
        "hash": "25", "plus": "7B", "escape": "=",
    },
    {"open": "(", "close": ")", "comma": "zz", "presub": "!PRE", "hash": "%23", "escape": "$"},
    {"ap": "!FOR"},
]  # fmt: skip
words = st.sampled_from(OTHER)


class InOtherWords(Texts):
    """What a client writes that has other words."""

    def __init__(self, words: Mapping[str, str]) -> None:
        self.words = {**WORDS, **words}

    def published(self, filt: str) -> str:
        """A filter as HivePBAC writes it, for names that it can express."""
        wild = {"#": self.words["hash"], "+": self.words["plus"]}
        return "/".join(wild.get(level, level) for level in filt.split("/"))

    def translated(self, text: str) -> str:
        """A text, right or wrong, with these words in the place of the canonical ones."""
        for name, word in WORDS.items():
            text = text.replace(word, self.words[name])
        return text


# Texts put together from pieces, most of which are wrong somewhere.
_pieces = st.sampled_from(
    (
        "!AP/", "!RESERVE/", "!PBAC/", "PRESUB/", "SET/", "GET/", "MODE", "EIP/", "PRESUBS/",
        "RESERVATIONS/", "{", "}", "|", ",", "/", "a", "b/c", "#", "+", "%23", "%2B", "%7B", "%7D",
        "%7C", "%2C", "%25", "%2b", "%", "HASH", "PLUS", "%48ASH", "/HASH/", "/+/", "{a}", "{}",
        "{a|b}", "{|}", "é", "\0", "$share/g/",
    )
)  # fmt: skip
_heads = st.sampled_from(
    (
        "!AP/",
        "!RESERVE/",
        "!PBAC/PRESUB/",
        "!PBAC/SET/",
        "!PBAC/GET/EIP/",
        "!PBAC/GET/",
        "!PBAC/",
        "",
    )
)
_ends = st.sampled_from(("{a}", "{a|b}", "{}", "{|}", "{a|}", "{a,b|c}", ""))
pieced = st.tuples(_heads, st.lists(_pieces, max_size=6).map("".join), _ends).map("".join)

# A right text with something put in, taken out or exchanged.
spoiled = st.tuples(
    st.one_of(commands, accesses).map(lambda value: written(value, purposes)),
    st.integers(0, 200),
    st.integers(0, 3),
    _pieces,
).map(lambda s: s[0][: s[1] % (len(s[0]) + 1)] + s[3] + s[0][s[1] % (len(s[0]) + 1) + s[2] :])
