"""Cases of PURPOSES.md: the texts of subscriptions for a purpose, of reservations and commands."""

from __future__ import annotations

from .case import Cases, Json
from .purposes import Texts

# The published examples: a car's location, a household's power sensors.
CAR = ("country1/area3/vehicle2342/location", ("operational", "marketing"))
# What is longer comes out as its length.
LONG = 1000


def _hex(text: str) -> str:
    return text.encode().hex()


def _several(some: tuple[str, ...]) -> list[str]:
    return [_hex(one) for one in some]


def _access(filt: str, purpose: str) -> Json:
    return {"kind": "access", "filter": _hex(filt), "purpose": _hex(purpose)}


def _reserve(filt: str, aip: tuple[str, ...], pip: tuple[str, ...]) -> Json:
    return {"kind": "reserve", "filter": _hex(filt), "aip": _several(aip), "pip": _several(pip)}


def _presub(client: str, filt: str, purpose: str) -> Json:
    return {
        "kind": "presub", "client": _hex(client), "filter": _hex(filt), "purpose": _hex(purpose),
    }  # fmt: skip


def _set(name: str, value: str) -> Json:
    return {"kind": "set", "name": _hex(name), "value": _hex(value)}


def _get(what: str, arg: str) -> Json:
    return {"kind": "get", "what": what, "arg": _hex(arg)}


class _Purposes:
    """Cases of values and their texts."""

    def __init__(self, cases: Cases) -> None:
        self.cases = cases

    def good(self, name: str, what: str, value: Json, text: str) -> None:
        """A value and its text."""
        out: Json = {"text": _hex(text) if len(text) < LONG else len(text)}
        self.cases.good(f"purposes-{name}", "P2", what, "purposes", value, out)

    def bad(self, name: str, what: str, value: Json) -> None:
        """A value that has no text."""
        self.cases.bad(f"purposes-no-{name}", "P1", what, "purposes", value, "malformed")


def _accesses(c: _Purposes) -> None:
    for name, what, filt, purpose in (
        ("plain", "a filter without wildcards", "home/power/total", "billing"),
        ("wildcards", "# and + are escaped", "home/+/#", "operational/billing"),
        ("all", "everything", "#", "billing"),
        ("hash-level", "a level HASH that is no wildcard", "HASH/b", "p"),
        ("plus-level", "levels PLUS and +", "PLUS/+/PLUS", "p"),
        ("hash-purpose", "HASH in a purpose is a name", "a", "HASH/PLUS"),
        ("hash-part", "only a whole level is the keyword", "HASHED/aHASH/SURPLUS", "p"),
        ("braces", "braces in filter and purpose", "a{b}/{}", "{p}"),
        ("separators", "| and , in filter and purpose", "x|y/a,b", "q|r,s"),
        ("percent", "what looks like an escape", "%41/%23/%/%%25", "%2B"),
        ("percent-hash", "what looks like an escaped HASH", "%48ASH/%50LUS", "p"),
        ("wild-purpose", "# and + in a purpose", "a", "c#/c++"),
        ("empty-levels", "levels that are empty", "/a//b/", "p"),
        ("slash", "two empty levels", "/", "p"),
        ("keyword", "a filter that begins with the keyword", "!AP/a", "p"),
        ("utf8", "UTF-8 is not escaped", "maschine/größe/温度/🔒", "abrechnung/für/é"),
        ("share", "the keyword precedes $share", "$share/g/a/#", "p"),
        ("longest", "1,024 bytes in all", "f" * 1017, "p"),
        ("longest-escapes", "1,024 bytes with escapes", "{" * 339, "p"),
        ("longest-purpose", "a purpose of 128 bytes", "a", "é" * 64),
    ):
        text = Texts().access(filt, purpose)
        c.good(f"access-{name}", what, _access(filt, purpose), text)
    for name, what, filt, purpose in (
        ("empty-purpose", "a purpose of no byte", "a", ""),
        ("long-purpose", "a purpose of 129 bytes", "a", "p" * 129),
        ("long-purpose-utf8", "a purpose of 65 characters and 130 bytes", "a", "é" * 65),
        ("nul", "U+0000 in a purpose", "a", "p\0"),
        ("empty-level", "a purpose that ends with /", "a", "p/"),
        ("empty-first-level", "a purpose that begins with /", "a", "/p"),
        ("empty-middle-level", "a purpose with an empty level", "a", "p//q"),
        ("empty-filter", "a filter of no byte", "", "p"),
        ("filter", "# inside of a filter", "#/a", "p"),
        ("plus-inside", "+ beside other characters of a level", "a+/b", "p"),
        ("hash-inside", "# beside other characters of a level", "a/b#", "p"),
        ("nul-filter", "U+0000 in a filter", "a\0", "p"),
        ("longer-access", "1,025 bytes in all", "f" * 1018, "p"),
        ("long-access", "1,025 bytes with escapes", "{" * 339 + "f", "p"),
    ):
        c.bad(name, what, _access(filt, purpose))


def _reservations(c: _Purposes) -> None:
    for name, what, filt, aip, pip in (
        ("car", "allowed and prohibited", *CAR, ("marketing/individualized",)),
        ("allowed", "nothing is prohibited", "home/#", ("marketing", "operational"), ()),
        ("prohibited", "nothing is allowed", "home/#", (), ("marketing",)),
        ("nothing", "both sets are empty: nothing is allowed", "home/+", (), ()),
        ("both", "one purpose in both sets", "a", ("p",), ("p",)),
        ("odd", "names with separators", "a{b}/HASH", ("x|y", "%7C"), ("{}", "a,b")),
    ):
        text = Texts().reserve(filt, aip, pip)
        c.good(f"reserve-{name}", what, _reserve(filt, tuple(aip), pip), text)
    # `aip` has no room in a case: so many purposes of five digits.
    many = {**_reserve("f" * 1024, (), ("12345",)), "aip": 1192}
    five = tuple(f"{n:05}" for n in range(1192))
    long = "8,192 bytes; in it 1,192 purposes of five digits"
    c.good("reserve-longest", long, many, Texts().reserve("f" * 1024, five, ("12345",)))
    c.bad("longer-reserve", "8,193 bytes", {**many, "pip": _several(("123456",))})
    c.good(
        "release",
        "an empty reservation",
        {"kind": "release", "filter": _hex("home/#")},
        Texts().release("home/#"),
    )
    for name, what, filt, allowed, prohibited in (
        ("twice", "a purpose twice", "a", "p q p", ""),
        ("twice-prohibited", "a purpose twice among the prohibited", "a", "", "p p"),
        ("empty-allowed", "an empty purpose among others", "a", "p  q", ""),
        ("empty-prohibited", "empty purposes alone", "a", "", " "),
        ("reserve-filter", "# beside other characters of a level", "a#", "p", ""),
        ("reserve-no-filter", "a filter of no byte", "", "p", ""),
    ):
        sets = (tuple(some.split(" ")) if some else () for some in (allowed, prohibited))
        c.bad(name, what, _reserve(filt, *sets))
    c.bad("release-filter", "a filter of no byte", {"kind": "release", "filter": ""})


def _settings(c: _Purposes) -> None:
    for name, what, client, filt, purpose in (
        ("plain", "for a client that knows nothing of purposes", "meter-7", "home/#", "billing"),
        ("removed", "an empty one", "meter-7", "home/#", ""),
        ("odd", "a client and a filter with separators", "HASH{1}", "HASH/,/+", "p"),
        ("slash", "a filter that begins with an empty level", "c", "/a", "p"),
    ):
        text = Texts().presubscribe(client, filt, purpose)
        c.good(f"presub-{name}", what, _presub(client, filt, purpose), text)
    for name, what, client, filt, purpose in (
        ("client", "a client of two levels", "a/b", "a", "p"),
        ("empty-client", "a client of no byte", "", "a", "p"),
        ("presub-filter", "# inside of a filter", "c", "#/a", "p"),
        ("presub-no-filter", "a filter of no byte", "c", "", "p"),
        ("presub-purpose", "a purpose that begins with /", "c", "a", "/p"),
    ):
        c.bad(name, what, _presub(client, filt, purpose))
    for name, what, value in (
        ("mode", "the mode", "hybrid"),
        ("default", "back to what the site has", ""),
        ("odd", "a value with separators", "a|{,}%"),
    ):
        c.good(f"set-{name}", what, _set("mode", value), Texts().setting("mode", value))
    for name, what, setting, value in (
        ("setting", "a setting of no byte", "", "p"),
        ("setting-levels", "a setting of two levels", "a/b", "p"),
        ("value-levels", "a value of two levels", "a", "p/q"),
    ):
        c.bad(name, what, _set(setting, value))


def _questions(c: _Purposes) -> None:
    for asked, arg in (
        ("mode", ""),
        ("reservations", "home/+/#"),
        ("eip", "home/HASH/a{b}"),
        ("presubs", "meter-7"),
    ):
        c.good(f"get-{asked}", "a question", _get(asked, arg), Texts().query(asked, arg))
    for name, what, asked, arg in (
        ("eip-of-filter", "purposes of a filter", "eip", "a/+"),
        ("eip-of-nothing", "purposes of no topic", "eip", ""),
        ("reservations-of-nothing", "reservations of no filter", "reservations", ""),
        ("presubs-of-levels", "presubscriptions of a client of two levels", "presubs", "a/b"),
        ("presubs-of-nothing", "presubscriptions of no client", "presubs", ""),
        ("mode-of-topic", "the mode of a topic", "mode", "a"),
        ("question", "a question that there is not", "all", "a"),
    ):
        c.bad(name, what, _get(asked, arg))


def add(c: Cases) -> None:
    """All cases of this file."""
    for group in (_accesses, _reservations, _settings, _questions):
        group(_Purposes(c))
