# Purposes as text (PURPOSES.md P2), written: the one form that clients write. Mediators read it.
#
# One text for each value: whatever separates is escaped where it is part of a name, so the first
# open brace ends the filter, and no wildcard is left that a client library would look at.
from .const import MAX_COMMAND, MAX_PURPOSE
from .errors import Malformed, Misuse
from .topics import check_raw_filter, check_topic

_TYPING = False
if _TYPING:
    from collections.abc import Iterable

# The escape first: what it makes is not escaped again.
_ESCAPED = "%{}|,#+"
# Levels that other forms take for wildcards, and what stands for them.
_LEVELS = (("HASH", "%48ASH"), ("PLUS", "%50LUS"))
# What can be asked.
ASKED = ("mode", "reservations", "eip", "presubs")


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


# What is subscribed to, for a purpose. It is a filter itself, and no longer than one.
def access(filt: str, purpose: str) -> str:
    check_purpose(purpose)
    text = "!AP/%s{%s}" % (_filter(filt), _escaped(purpose))
    check_raw_filter(to_raw(text))
    return text


def reserve(filt: str, aip: "Iterable[str]" = (), pip: "Iterable[str]" = ()) -> str:
    inside = "%s|%s" % (_several(aip), _several(pip))
    return _command("!RESERVE/", _filter(filt), inside)


def release(filt: str) -> str:
    return _command("!RESERVE/", _filter(filt), "")


# purpose "" removes it.
def presubscribe(client: str, filt: str, purpose: str = "") -> str:
    check_name(client)
    if purpose:
        check_purpose(purpose)
    where = "%s/%s" % (_escaped(client), _filter(filt))
    return _command("!PBAC/PRESUB/", where, _escaped(purpose))


# value "": as sealmq.toml has it.
def setting(name: str, value: str = "") -> str:
    check_name(name)
    if value:
        check_name(value)
    return _command("!PBAC/SET/", _escaped(name), _escaped(value))


# mode; reservations FILTER; eip TOPIC; presubs CLIENT.
def query(what: str, arg: str = "") -> str:
    if what not in ASKED or (what == "mode") != (arg == ""):
        raise Malformed("no query: %r of %r" % (what, arg))
    where = what.upper()
    if what == "presubs":
        check_name(arg)
        where += "/" + _escaped(arg)
    elif arg:
        if what == "eip":
            check_topic(arg)
        where += "/" + _filter(arg)
    return _command("!PBAC/GET/", where, "")


def _command(word: str, where: str, inside: str) -> str:
    text = "%s%s{%s}" % (word, where, inside)
    if len(to_raw(text)) > MAX_COMMAND:
        raise Malformed("a command has at most %d bytes" % MAX_COMMAND)
    return text


def _several(purposes: "Iterable[str]") -> str:
    if isinstance(purposes, str):
        raise Misuse("purposes are a tuple, not one text")
    # A command may have thousands, and they come from a stranger.
    found: "dict[str, int]" = {}
    texts: "list[str]" = []
    for purpose in purposes:
        check_purpose(purpose)
        if purpose in found:
            raise Malformed("%r stands there twice" % purpose)
        found[purpose] = 1
        texts.append(_escaped(purpose))
    return ",".join(texts)


def _escaped(text: str) -> str:
    for char in _ESCAPED:
        if char in text:
            text = text.replace(char, "%%%02X" % ord(char))
    return text


def _filter(filt: str) -> str:
    check_raw_filter(to_raw(filt))
    text = _escaped(filt)
    for word, escaped in _LEVELS:
        if word in text:
            levels = [escaped if level == word else level for level in text.split("/")]
            text = "/".join(levels)
    return text
