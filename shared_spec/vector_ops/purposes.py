# Writing the texts of purposes (PURPOSES.md P2).
from sealmq_spec.purposes import access, presubscribe, query, release, reserve, setting

from . import hexed, raw, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What is longer is there as its length.
_LONG = 1000


def _text(d: "dict[str, Any]", key: str) -> str:
    return text_of(raw(d[key]))


# A number: so many purposes of five digits.
def _several(some: "Any") -> "list[str]":
    if isinstance(some, int):
        return [f"{n:05d}" for n in range(some)]
    return [text_of(raw(one)) for one in some]


def _put(d: "dict[str, Any]") -> str:
    kind = d["kind"]
    if kind == "access":
        return access(_text(d, "filter"), _text(d, "purpose"))
    if kind == "presub":
        return presubscribe(_text(d, "client"), _text(d, "filter"), _text(d, "purpose"))
    if kind == "set":
        return setting(_text(d, "name"), _text(d, "value"))
    if kind == "get":
        return query(d["what"], _text(d, "arg"))
    if kind == "reserve":
        return reserve(_text(d, "filter"), _several(d["aip"]), _several(d["pip"]))
    return release(_text(d, "filter"))


def purposes(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    text = _put(d)
    return {"text": hexed(text.encode()) if len(text) < _LONG else len(text)}


OPS = {"purposes": purposes}
