# Operations on the texts of purposes (SPEC.md 12).
from sealmq_spec.purposes_read import GET, PRESUB, RELEASE, RESERVE, SET, Reader

from . import hexed, raw, same, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _hex(text: str) -> str:
    return hexed(text.encode())


def _text(d: "dict[str, Any]", key: str) -> str:
    return text_of(raw(d[key]))


def _texts(d: "dict[str, Any]", key: str) -> "list[str]":
    return [text_of(raw(one)) for one in d[key]]


def _filter(filt: str) -> "str | int":
    return _hex(filt) if len(filt) < 1000 else len(filt)


# What was read, as a case has it. What is very long is there as its length.
def _shown(found: "Any") -> "dict[str, Any]":
    if len(found) == 2:
        filt, purpose = found
        return {"kind": "access", "filter": _filter(filt), "purpose": _hex(purpose)}
    kind, a, b, c = found
    if kind == PRESUB:
        return {"kind": kind, "client": _hex(a), "filter": _hex(b), "purpose": _hex(c)}
    if kind == SET:
        return {"kind": kind, "name": _hex(a), "value": _hex(b)}
    if kind == GET:
        return {"kind": kind, "what": a, "arg": _hex(b)}
    if kind == RELEASE:
        return {"kind": kind, "filter": _hex(a)}
    sets = [len(some) if len(some) > 99 else [_hex(one) for one in some] for some in (b, c)]
    return {"kind": kind, "filter": _filter(a), "aip": sets[0], "pip": sets[1]}


def _put(by: Reader, d: "dict[str, Any]") -> str:
    kind = d["kind"]
    if kind == "access":
        return by.access(_text(d, "filter"), _text(d, "purpose"))
    if kind == PRESUB:
        return by.presubscribe(_text(d, "client"), _text(d, "filter"), _text(d, "purpose"))
    if kind == SET:
        return by.setting(_text(d, "name"), _text(d, "value"))
    if kind == GET:
        return by.query(d["what"], _text(d, "arg"))
    if kind == RESERVE:
        return by.reserve(_text(d, "filter"), _texts(d, "aip"), _texts(d, "pip"))
    return by.release(_text(d, "filter"))


# A text, read; unless it is a published one, what was read is written again.
def purposes(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    by = Reader(d.get("words"), d.get("published", False))
    text = _text(d, "text")
    if "many" in d:
        text += ",".join([f"{n:05d}" for n in range(d["many"])]) + _text(d, "tail")
    found = _shown(by.read_access(text) or by.read(text))
    if not by.published and not isinstance(found.get("filter"), int):
        same("text", _put(by, found).encode(), text.encode())
    return found


def write(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    return {"text": _hex(_put(Reader(), d))}


OPS = {"purposes": purposes, "purposes.write": write}
