# Purposes as text, read (SPEC.md 12). What is read is written again: only that one text counts. Of
# a listener for the published form (HivePBAC's, which escapes nothing) more texts mean the same.
from .const import MAX_COMMAND
from .errors import Malformed
from .purposes import _ASKED, ASKED, Grammar, hexed, to_raw

_TYPING = False
if _TYPING:
    from collections.abc import Mapping
    from typing import Any

# The kinds of commands.
RESERVE = "reserve"
RELEASE = "release"
PRESUB = "presub"
SET = "set"
GET = "get"


class Reader(Grammar):
    def __init__(self, words: "Mapping[str, str] | None" = None, published: bool = False):
        super().__init__(words)
        self.published = published
        # What a level stands for as a whole: {text: name}.
        self._whole = {hexed(self._escape, w[0]) + w[1:]: w for w in self._levels}
        if published:
            self._whole[self._levels[0]] = "#"
            self._whole[self._levels[1]] = "+"

    # (filter, purpose) of a subscription, None if it names no purpose.
    def read_access(self, text: str) -> "tuple[str, str] | None":
        head = self._ap + "/"
        if not text.startswith(head):
            return None
        where, inside = self._parts(text[len(head) :])
        filt, purpose = self._read_filter(where), self._read_purpose(inside)
        self._same(text, self.access(filt, purpose))
        return filt, purpose

    # (RESERVE, filter, aip, pip), (RELEASE, filter, (), ()), (PRESUB, client, filter, purpose; ""
    # removes), (SET, name, value, ""), (GET, what, argument, "").
    def read(self, text: str) -> "tuple[str, str, Any, Any]":
        if len(to_raw(text)) > MAX_COMMAND:
            raise Malformed("a command has at most %d bytes" % MAX_COMMAND)
        for word, read in ((self._reserve, self._read_reserve), (self._pbac, self._read_pbac)):
            if text.startswith(word + "/"):
                where, inside = self._parts(text[len(word) + 1 :])
                found, again = read(where, inside)
                self._same(text, again)
                return found
        raise Malformed("no command about purposes: %r" % text[:80])

    def _read_reserve(self, where: str, inside: str) -> "tuple[tuple[str, str, Any, Any], str]":
        filt = self._read_filter(where)
        if not inside:
            return (RELEASE, filt, (), ()), self.release(filt)
        halves = inside.split(self._bar)
        if len(halves) != 2:
            raise Malformed("one %s between what is allowed and what is not" % self._bar)
        aip, pip = [
            tuple([self._read_purpose(one) for one in half.split(self._comma)]) if half else ()
            for half in halves
        ]
        return (RESERVE, filt, aip, pip), self.reserve(filt, aip, pip)

    def _read_pbac(self, where: str, inside: str) -> "tuple[tuple[str, str, Any, Any], str]":
        verb, _, rest = where.partition("/")
        if verb == self._presub:
            name, _, rest = rest.partition("/")
            client, filt = self._read_text(name), self._read_filter(rest)
            purpose = self._read_purpose(inside)
            return (PRESUB, client, filt, purpose), self.presubscribe(client, filt, purpose)
        if verb == self._set:
            name, value = self._read_text(rest), self._read_purpose(inside)
            return (SET, name, value, ""), self.setting(name, value)
        word, slash, rest = rest.partition("/")
        asked = self.words[_ASKED : _ASKED + len(ASKED)]
        if verb != self._get or inside or word not in asked:
            raise Malformed("no command about purposes: %r" % where[:80])
        what = ASKED[asked.index(word)]
        if what == "mode" and slash:
            raise Malformed("the mode is not of %r" % rest)
        arg = self._read_text(rest) if what == "presubs" else self._read_filter(rest)
        return (GET, what, arg, ""), self.query(what, arg)

    # What stands before the braces, and in them. Written texts have one open brace, published ones
    # may have more in front.
    def _parts(self, text: str) -> "tuple[str, str]":
        at = text.rfind(self._open)
        if at < 0 or not text.endswith(self._close):
            raise Malformed("no %s%s at the end: %r" % (self._open, self._close, text[-80:]))
        return text[:at], text[at + len(self._open) : len(text) - len(self._close)]

    def _read_purpose(self, text: str) -> str:
        for word in self.words[12:16]:
            if word in text:
                raise Malformed("%s in a purpose is not escaped: %r" % (word, text))
        return self._read_text(text)

    def _read_filter(self, text: str) -> str:
        whole = self._whole
        return "/".join([whole.get(level) or self._read_text(level) for level in text.split("/")])

    # What is no escape stands for itself, the escape last.
    def _read_text(self, text: str) -> str:
        if self._escape in text:
            for char, escaped in reversed(self._escapes):
                text = text.replace(escaped, char)
        return text

    def _same(self, text: str, again: str) -> None:
        if not self.published and text != again:
            raise Malformed("not as it is written: %r, %r is" % (text[:80], again[:80]))
