"""Cases of section 12: the texts of subscriptions for a purpose, of reservations and commands."""

from __future__ import annotations

from collections.abc import Mapping

from .case import Cases, Json
from .purposes import Texts

# The published examples: a car's location, a household's power sensors.
CAR = ("country1/area3/vehicle2342/location", ("operational", "marketing"))
WORDS = {"open": "<<", "close": "»", "hash": "ALL", "ap": "!FOR", "reserve": "!R", "escape": "~"}


def _hex(text: str) -> str:
    return text.encode().hex()


def _several(some: tuple[str, ...]) -> list[str]:
    return [_hex(one) for one in some]


def _access(filt: str, purpose: str) -> Json:
    # Text and filter would not fit in a case.
    where = _hex(filt) if len(filt) < 1000 else len(filt)
    return {"kind": "access", "filter": where, "purpose": _hex(purpose)}


def _reserve(filt: str, aip: tuple[str, ...], pip: tuple[str, ...]) -> Json:
    return {"kind": "reserve", "filter": _hex(filt), "aip": _several(aip), "pip": _several(pip)}


def _presub(client: str, filt: str, purpose: str) -> Json:
    return {
        "kind": "presub", "client": _hex(client), "filter": _hex(filt), "purpose": _hex(purpose),
    }  # fmt: skip


def _inputs(text: str, published: bool, words: Mapping[str, str] | None) -> Json:
    inputs: Json = {"text": _hex(text)}
    if published:
        inputs["published"] = True
    if words:
        inputs["words"] = dict(words)
    return inputs


class _Purposes:
    """Cases, with the section that each is about."""

    def __init__(self, cases: Cases) -> None:
        self.cases = cases

    def good(
        self,
        name: str,
        what: str,
        text: str,
        out: Json,
        published: bool = False,
        words: Mapping[str, str] | None = None,
    ) -> None:
        """A text that is read, and that the writer of section 12.2 writes, unless `published`."""
        section = "12.3" if published else "12.2"
        self.cases.good(
            f"purposes-{name}", section, what, "purposes", _inputs(text, published, words), out
        )

    def bad(self, name: str, what: str, text: str, published: bool = False) -> None:
        """A text that is none."""
        section = "12.3" if published else "12.2"
        inputs = _inputs(text, published, None)
        self.cases.bad(f"purposes-{name}", section, what, "purposes", inputs, "malformed")

    def no_text(self, name: str, what: str, value: Json) -> None:
        """A value that has no text."""
        self.cases.bad(f"purposes-no-{name}", "12.1", what, "purposes.write", value, "malformed")


def _accesses(c: _Purposes) -> None:
    t = Texts()
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
        ("longest-purpose", "a purpose of 128 bytes", "a", "é" * 64),
    ):
        c.good(f"access-{name}", what, t.access(filt, purpose), _access(filt, purpose))
    for name, what, text in (
        ("raw-hash", "# is not escaped", "!AP/a/#{p}"),
        ("raw-plus", "+ is not escaped", "!AP/+/a{p}"),
        ("raw-plus-purpose", "+ in a purpose is not escaped", "!AP/a{c++}"),
        ("raw-keyword", "HASH is not escaped", "!AP/a/HASH{p}"),
        ("raw-brace", "a brace in a filter is not escaped", "!AP/a{b}{p}"),
        ("raw-close", "a closing brace in a filter", "!AP/a}{p}"),
        ("raw-bar", "| in a filter", "!AP/x|y{p}"),
        ("raw-comma", "two purposes", "!AP/a{p,q}"),
        ("raw-percent", "% is not escaped", "!AP/100%{p}"),
        ("escaped-letter", "an escape that nobody needs", "!AP/%41{p}"),
        ("escaped-slash", "a / that would be no level's end", "!AP/a%2Fb{p}"),
        ("escaped-nul", "U+0000", "!AP/a%00{p}"),
        ("lower-case", "hexadecimal digits in lower case", "!AP/a%7b{p}"),
        ("escape-cut", "an escape of one digit", "!AP/a%2{p}"),
        ("escaped-twice", "a letter of HASH too many is escaped", "!AP/%48%41SH{p}"),
        ("escaped-hash-inside", "HASH in a longer level", "!AP/%48ASHED{p}"),
        ("no-purpose", "braces with nothing in them", "!AP/a{}"),
        ("empty-level-purpose", "a purpose with an empty level", "!AP/a{p//q}"),
        ("no-filter", "nothing in front of the braces", "!AP/{p}"),
        ("no-braces", "no braces", "!AP/a"),
        ("no-close", "no brace at the end", "!AP/a{p"),
        ("behind", "something behind the braces", "!AP/a{p}/b"),
        ("hash-inside", "# is not last", "!AP/%23/a{p}"),
        ("plus-inside", "+ is not alone", "!AP/a%2B{p}"),
        ("longer", "1,025 bytes in all", t.access("f" * 1018, "p")),
        ("long-escapes", "1,025 bytes with escapes", t.access("{" * 339 + "f", "p")),
        ("longer-purpose", "a purpose of 129 bytes", t.access("a", "p" * 129)),
    ):
        c.bad(f"access-{name}", what, text)


def _commands(c: _Purposes) -> None:
    t = Texts()
    for name, what, filt, aip, pip in (
        ("car", "allowed and prohibited", *CAR, ("marketing/individualized",)),
        ("allowed", "nothing is prohibited", "home/#", ("marketing", "operational"), ()),
        ("prohibited", "nothing is allowed", "home/#", (), ("marketing",)),
        ("nothing", "both sets are empty: nothing is allowed", "home/+", (), ()),
        ("both", "one purpose in both sets", "a", ("p",), ("p",)),
        ("odd", "names with separators", "a{b}/HASH", ("x|y", "%7C"), ("{}", "a,b")),
    ):
        c.good(f"reserve-{name}", what, t.reserve(filt, aip, pip), _reserve(filt, tuple(aip), pip))
    many: Json = {"text": _hex("!RESERVE/" + "f" * 1024 + "{"), "many": 1192}
    long = "8,192 bytes; in it 1,192 purposes of five digits"
    c.cases.good(
        "purposes-reserve-longest", "12.1", long, "purposes", {**many, "tail": _hex("|12345}")},
        {"kind": "reserve", "filter": 1024, "aip": 1192, "pip": [_hex("12345")]},
    )  # fmt: skip
    c.cases.bad(
        "purposes-reserve-longer", "12.1", "8,193 bytes", "purposes",
        {**many, "tail": _hex("|123456}")}, "malformed",
    )  # fmt: skip
    release: Json = {"kind": "release", "filter": _hex("home/#")}
    c.good("release", "an empty reservation", t.release("home/#"), release)
    for name, what, client, filt, purpose in (
        ("plain", "for a client that knows nothing of purposes", "meter-7", "home/#", "billing"),
        ("removed", "an empty one", "meter-7", "home/#", ""),
        ("odd", "a client and a filter with separators", "HASH{1}", "HASH/,/+", "p"),
        ("slash", "a filter that begins with an empty level", "c", "/a", "p"),
    ):
        text = t.presubscribe(client, filt, purpose)
        c.good(f"presub-{name}", what, text, _presub(client, filt, purpose))
    for name, what, value in (
        ("mode", "the mode", "hybrid"),
        ("default", "back to what the site has", ""),
        ("odd", "a value with separators", "a|{,}%"),
    ):
        out = {"kind": "set", "name": _hex("mode"), "value": _hex(value)}
        c.good(f"set-{name}", what, t.setting("mode", value), out)
    for asked, arg in (
        ("mode", ""),
        ("reservations", "home/+/#"),
        ("eip", "home/HASH/a{b}"),
        ("presubs", "meter-7"),
    ):
        out = {"kind": "get", "what": asked, "arg": _hex(arg)}
        c.good(f"get-{asked}", "a question", t.query(asked, arg), out)
    for name, what, text in (
        ("no-bar", "allowed and prohibited are not told apart", "!RESERVE/a{p,q}"),
        ("two-bars", "three sets", "!RESERVE/a{p|q|r}"),
        ("twice", "a purpose twice", "!RESERVE/a{p,q,p|}"),
        ("empty-purpose", "a comma at the end", "!RESERVE/a{p,|}"),
        ("comma-alone", "two empty purposes", "!RESERVE/a{,|}"),
        ("raw-hash-command", "# is not escaped", "!RESERVE/#{p|}"),
        ("no-filter-command", "no filter", "!RESERVE/{p|}"),
        ("no-slash", "no level behind the keyword", "!RESERVE{p|}"),
        ("keyword-case", "a keyword in lower case", "!reserve/a{p|}"),
        ("nothing-known", "no keyword", "a/b{p|}"),
        ("empty-text", "nothing", ""),
        ("presub-no-filter", "a client alone", "!PBAC/PRESUB/c{p}"),
        ("presub-no-client", "no client", "!PBAC/PRESUB//a{p}"),
        ("presub-two", "two purposes", "!PBAC/PRESUB/c/a{p,q}"),
        ("set-no-name", "no name", "!PBAC/SET/{p}"),
        ("set-levels", "a name of two levels", "!PBAC/SET/a/b{p}"),
        ("set-value-levels", "a value of two levels", "!PBAC/SET/a{p/q}"),
        ("get-inside", "a question with something in its braces", "!PBAC/GET/MODE{p}"),
        ("get-mode-slash", "the mode of nothing", "!PBAC/GET/MODE/{}"),
        ("get-no-arg", "a question without what it is about", "!PBAC/GET/EIP{}"),
        ("get-eip-filter", "purposes of a filter", "!PBAC/GET/EIP/a/%2B{}"),
        ("get-client-levels", "a client of two levels", "!PBAC/GET/PRESUBS/a/b{}"),
        ("get-unknown", "no such question", "!PBAC/GET/ALL/a{}"),
        ("pbac-unknown", "no such command", "!PBAC/DROP/a{}"),
    ):
        c.bad(name, what, text)


def _published(c: _Purposes) -> None:
    t = Texts()
    for name, what, text, out in (
        ("raw", "# and + as they are", "!AP/home/+/#{p}", _access("home/+/#", "p")),
        ("keywords", "HASH and PLUS", "!AP/PLUS/a/HASH{p}", _access("+/a/#", "p")),
        ("names", "HASH and PLUS in names are no wildcards", "!AP/SURPLUS/HASHED/REHASH{SURPLUS}",
         _access("SURPLUS/HASHED/REHASH", "SURPLUS")),
        ("braces", "the last opening brace counts", "!AP/a{b}/{c{p}", _access("a{b}/{c", "p")),
        ("signs", "other separators in a filter", "!AP/x|y/a,b/}{p}", _access("x|y/a,b/}", "p")),
        ("percent", "a % that begins no escape", "!AP/100%/%41/%7b{9%}",
         _access("100%/%41/%7b", "9%")),
        ("escaped", "escapes mean what they mean everywhere", t.access("a{b}/HASH/#", "x|y"),
         _access("a{b}/HASH/#", "x|y")),
        ("percent-escaped", "a name that only its escape can express", "!AP/%2523{p}",
         _access("%23", "p")),
        ("not-percent", "the same without: a wildcard", "!AP/%23{p}", _access("#", "p")),
        ("reserve", "a reservation", "!RESERVE/" + CAR[0] + "{operational|c++}",
         _reserve(CAR[0], ("operational",), ("c++",))),
        ("presub", "a presubscription", "!PBAC/PRESUB/meter{7}/home/#{billing}",
         _presub("meter{7}", "home/#", "billing")),
    ):  # fmt: skip
        c.good(f"published-{name}", what, text, out, published=True)
    for name, what, text in (
        ("hash-inside", "HASH is not last", "!AP/HASH/a{p}"),
        ("plus-inside", "+ is not alone", "!AP/a+{p}"),
        ("close-inside", "a brace in a purpose", "!AP/a{p}q}"),
        ("comma-inside", "two purposes", "!AP/a{p,q}"),
        ("bar-inside", "three sets", "!RESERVE/a{p|q|r}"),
        ("mode-slash", "the mode of nothing", "!PBAC/GET/MODE/{}"),
        ("no-close", "no brace at the end", "!AP/a{pq"),
        ("longer", "its escaped text has 1,026 bytes", "!AP/" + "%" * 339 + "ff{p}"),
    ):
        c.bad(f"published-{name}", what, text, published=True)
    w = Texts(WORDS)
    for name, what, filt, purpose in (
        ("plain", "other keywords and separators", "a/#", "p"),
        ("odd", "what they make odd, and what not", "ALL/<a>/HASH/~/{|}/»", "<<»"),
    ):
        c.good(f"words-{name}", what, w.access(filt, purpose), _access(filt, purpose), words=WORDS)
    text = w.reserve("ALL", ("a<", "b,c"), ())
    c.good("words-reserve", "a reservation", text, _reserve("ALL", ("a<", "b,c"), ()), words=WORDS)


def _values(c: _Purposes) -> None:
    for name, what, value in (
        ("empty-purpose", "a purpose of no byte", _access("a", "")),
        ("long-purpose", "a purpose of 129 bytes", _access("a", "p" * 129)),
        ("nul", "U+0000 in a purpose", _access("a", "p\0")),
        ("empty-level", "a purpose that ends with /", _access("a", "p/")),
        ("filter", "# inside of a filter", _access("#/a", "p")),
        ("long-access", "more than 1,024 bytes with escapes", _access("{" * 400, "p")),
        ("twice", "a purpose twice", _reserve("a", ("p", "q", "p"), ())),
        ("client", "a client of two levels", _presub("a/b", "a", "p")),
        ("empty-client", "a client of no byte", _presub("", "a", "p")),
        ("eip-of-filter", "purposes of a filter",
         {"kind": "get", "what": "eip", "arg": _hex("a/+")}),
    ):  # fmt: skip
        c.no_text(name, what, value)


def add(c: Cases) -> None:
    """All cases of this file."""
    for group in (_accesses, _commands, _published, _values):
        group(_Purposes(c))
