"""Whether a family's manifest holds what its fields are declared to hold.

A wrong one would else be found by whoever uses the field, in the middle of another command.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from .api import UnfitFamily
from .manifest import Manifest, Ref

_CHECKED: dict[str, Manifest] = {}
_FIELDS: dict[type, Mapping[str, Any]] = {}


def check_manifest(name: str, found: object) -> Manifest:
    """What the folder `name` has as MANIFEST. UnfitFamily."""
    if isinstance(found, Manifest) and _CHECKED.get(name) is found:
        return found
    hint = "gateway/FAMILIES.md says what a manifest holds; mend the folder, or take it out"
    where = f"the folder sealmq/families/{name}"
    if found is None:
        raise UnfitFamily(name, f"{where} has no MANIFEST", hint)
    if not isinstance(found, Manifest):
        raise UnfitFamily(name, f"{where} has as MANIFEST {found!r}, which is no Manifest", hint)
    if found.name != name:
        raise UnfitFamily(name, f"{where} has the manifest of {found.name!r}", hint)
    if wrong := _wrong("", found):
        raise UnfitFamily(name, f"the manifest of the policy family {name!r}: {wrong}", hint)
    _CHECKED[name] = found
    return found


def _fields(of: type) -> Mapping[str, Any]:
    if of not in _FIELDS:
        _FIELDS[of] = get_type_hints(of, localns={"Family": object, "Make": object})
    return _FIELDS[of]


def _wrong(at: str, value: object) -> str:
    """Of a dataclass or a named tuple: the first field that does not hold what it should."""
    for key, wanted in _fields(type(value)).items():
        path = f"{at}{key}"
        if wrong := _misfit(path, getattr(value, key), wanted):
            return wrong
    return ""


def _misfit(path: str, value: Any, wanted: Any) -> str:
    made = get_origin(wanted) or wanted
    if made in (Union, types.UnionType):
        if value is None:
            return ""
        made, wanted = next(
            (get_origin(w) or w, w) for w in get_args(wanted) if w is not types.NoneType
        )
    if made is Any:
        return ""
    if not isinstance(value, made) or (made is Sequence and isinstance(value, str)):
        return f"`{path}` is {value!r}, which is no {made.__name__}"
    parts = get_args(wanted)
    if made in (tuple, Sequence):
        rows = ((f"{path}.{n}", row, parts[0]) for n, row in enumerate(value))
    elif made is Mapping:
        rows = ((f"{path}.{key}", row, parts[1]) for key, row in value.items())
        if strange := [key for key in value if not isinstance(key, str)]:
            return f"`{path}` has the key {strange[0]!r}, which is no text"
    elif made is not Ref and (is_dataclass(value) or isinstance(value, tuple)):
        return _wrong(f"{path}.", value)
    else:
        return ""
    return next((wrong for row in rows if (wrong := _misfit(*row))), "")
