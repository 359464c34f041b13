# Other keywords and separators for the text of purposes (SPEC.md 12.2): what they must be for each
# text to mean one thing.
from .errors import Misuse
from .purposes import WORDS, hexed

_TYPING = False
if _TYPING:
    from collections.abc import Mapping
    from typing import Any

NAMES = (
    "reserve", "ap", "pbac", "presub", "set", "get", "mode", "reservations", "eip", "presubs",
    "hash", "plus", "open", "close", "bar", "comma", "escape",
)  # fmt: skip
# The first three begin a filter that no application can have. From the thirteenth on: separators.
_FIRST = 3
_SEPARATORS = 12
# Not theirs: a level's end, wildcards, and what escapes are written with.
_TAKEN = "/#+\0"
_HEX = "0123456789ABCDEF"


# WORDS with these instead. Misuse if a text could mean two things.
def chosen(words: "Mapping[str, str]") -> "tuple[str, ...]":
    for name in words:
        if name not in NAMES:
            raise Misuse("%r is no word of the grammar: %s" % (name, ", ".join(NAMES)))
    found = tuple([words.get(name, word) for name, word in zip(NAMES, WORDS)])
    separators = "".join(found[_SEPARATORS:])
    for at, word in enumerate(found):
        check(NAMES[at], word, separators if at < _SEPARATORS else _HEX)
        if at < _FIRST and (word[0] != "!" or word in ("!", "!c1", "!s1")):
            raise Misuse("%s must begin with ! and is not !c1 or !s1: %r" % (NAMES[at], word))
        if word in found[:at]:
            raise Misuse("%s is what %s is: %r" % (NAMES[at], NAMES[found.index(word)], word))
    for at in range(_SEPARATORS, len(found)):
        for char in found[at]:
            if sum([char in word for word in found[_SEPARATORS:]]) > 1:
                raise Misuse("%r is in two separators" % char)
    if len(found[-1]) != 1:
        raise Misuse("escape is one character: %r" % found[-1])
    return found


# others: characters that are not for this word.
def check(name: str, word: "Any", others: str) -> None:
    if not isinstance(word, str) or not 0 < len(word) <= 32:
        raise Misuse("%s has 1 to 32 characters: %r" % (name, word))
    try:
        hexed("", word)
    except ValueError:
        raise Misuse("%s is no UTF-8: %r" % (name, word)) from None
    for char in word:
        if char in _TAKEN or char in others:
            raise Misuse("%s cannot have %r: %r" % (name, char, word))
