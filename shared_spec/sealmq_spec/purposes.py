# Purposes as text (SPEC.md 12): what a client writes. purposes_read.py reads it.
#
# One text for each value: whatever separates is escaped where it is part of a name, so the first
# open brace ends the filter, and no wildcard is left that a client library would look at.
from .const import MAX_COMMAND, MAX_PURPOSE
from .errors import Malformed, Misuse
from .topics import check_raw_filter, check_topic

_TYPING = False
if _TYPING:
    from collections.abc import Iterable, Mapping

# In the order of purposes_words.NAMES, which says what each is.
WORDS = (
    "!RESERVE", "!AP", "!PBAC", "PRESUB", "SET", "GET", "MODE", "RESERVATIONS", "EIP", "PRESUBS",
    "HASH", "PLUS", "{", "}", "|", ",", "%",
)  # fmt: skip
# What can be asked, in the order of its words, which begin at the seventh.
ASKED = ("mode", "reservations", "eip", "presubs")
_ASKED = 6


def to_raw(text: str) -> bytes:
    try:
        return text.encode()
    except ValueError:
        raise Malformed("no UTF-8: %r" % text) from None


def check_purpose(purpose: str) -> None:
    raw = to_raw(purpose)
    if not 0 < len(raw) <= MAX_PURPOSE:
        raise Malformed("a purpose has 1 to %d bytes, this one %d" % (MAX_PURPOSE, len(raw)))
    if b"\0" in raw or b"//" in b"/" + raw + b"/":
        raise Malformed("a purpose has no NUL and no empty level: %r" % purpose)


# A client, a setting and its value.
def check_name(name: str) -> None:
    check_purpose(name)
    if "/" in name:
        raise Malformed("a name has no /: %r" % name)


# The bytes of a character, as they are escaped.
def hexed(escape: str, char: str) -> str:
    return "".join(["%s%02X" % (escape, byte) for byte in char.encode()])


class Grammar:
    # words: other keywords and separators, by the names in purposes_words.NAMES.
    def __init__(self, words: "Mapping[str, str] | None" = None):
        w: "tuple[str, ...]" = WORDS
        if words:
            from .purposes_words import chosen

            w = chosen(words)
        self.words = w
        self._reserve, self._ap, self._pbac, self._presub, self._set, self._get = w[:_ASKED]
        # Levels that stand for wildcards in the published form.
        self._levels = w[10:12]
        self._open, self._close, self._bar, self._comma, self._escape = w[12:]
        # The escape first: what it makes is not escaped again.
        chars = self._escape + self._open + self._close + self._bar + self._comma + "#+"
        self._escapes = [(char, hexed(self._escape, char)) for char in chars]

    def reserve(self, filt: str, aip: "Iterable[str]" = (), pip: "Iterable[str]" = ()) -> str:
        inside = self._purposes(aip) + self._bar + self._purposes(pip)
        return self._command("%s/%s" % (self._reserve, self._filter(filt)), inside)

    def release(self, filt: str) -> str:
        return self._command("%s/%s" % (self._reserve, self._filter(filt)), "")

    # What is subscribed to, for a purpose. It is a filter itself, and no longer than one.
    def access(self, filt: str, purpose: str) -> str:
        check_purpose(purpose)
        inside = self._text(purpose)
        text = self._braced("%s/%s" % (self._ap, self._filter(filt)), inside)
        check_raw_filter(to_raw(text))
        return text

    # purpose "" removes it.
    def presubscribe(self, client: str, filt: str, purpose: str = "") -> str:
        check_name(client)
        if purpose:
            check_purpose(purpose)
        where = self._filter(filt)
        head = "%s/%s/%s/%s" % (self._pbac, self._presub, self._text(client), where)
        return self._command(head, self._text(purpose))

    # value "": as sealmq.toml has it.
    def setting(self, name: str, value: str = "") -> str:
        check_name(name)
        if value:
            check_name(value)
        head = "%s/%s/%s" % (self._pbac, self._set, self._text(name))
        return self._command(head, self._text(value))

    # mode; reservations FILTER; eip TOPIC; presubs CLIENT.
    def query(self, what: str, arg: str = "") -> str:
        if what not in ASKED or (what == "mode") != (arg == ""):
            raise Malformed("no query: %r of %r" % (what, arg))
        head = "%s/%s/%s" % (self._pbac, self._get, self.words[_ASKED + ASKED.index(what)])
        if what == "presubs":
            check_name(arg)
            head += "/" + self._text(arg)
        elif arg:
            if what == "eip":
                check_topic(arg)
            head += "/" + self._filter(arg)
        return self._command(head, "")

    def _command(self, head: str, inside: str) -> str:
        text = self._braced(head, inside)
        if len(to_raw(text)) > MAX_COMMAND:
            raise Malformed("a command has at most %d bytes" % MAX_COMMAND)
        return text

    def _braced(self, head: str, inside: str) -> str:
        return head + self._open + inside + self._close

    def _purposes(self, purposes: "Iterable[str]") -> str:
        if isinstance(purposes, str):
            raise Misuse("purposes are several: not one text, but a tuple of them")
        texts: "list[str]" = []
        # A command may have thousands, and they come from a stranger.
        found: "dict[str, int]" = {}
        for purpose in purposes:
            check_purpose(purpose)
            if purpose in found:
                raise Malformed("%r stands there twice" % purpose)
            found[purpose] = 1
            texts.append(self._text(purpose))
        return self._comma.join(texts)

    def _text(self, text: str) -> str:
        for char, escaped in self._escapes:
            if char in text:
                text = text.replace(char, escaped)
        return text

    def _filter(self, filt: str) -> str:
        check_raw_filter(to_raw(filt))
        text = self._text(filt)
        for word in self._levels:
            if word in text:
                text = "/".join([self._level(level, word) for level in text.split("/")])
        return text

    # A level that is the word for a wildcard is not one.
    def _level(self, level: str, word: str) -> str:
        return hexed(self._escape, word[0]) + word[1:] if level == word else level
