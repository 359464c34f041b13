"""Changes of what operators write (plain.py): the new text, comments and order kept. Whether it can
be taken says the key generator's part, as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any, cast

import tomlkit

from .coded import below
from .plain import BadPlain, Granted, Plain, read


def grant(text: str, customer: str, has: Sequence[str], wants: Sequence[str] | None) -> str:
    """A customer has these conjunctions; `wants` None: it takes what it is let have."""
    row: dict[str, Any] = {"has": list(has)}
    if wants is not None:
        row["wants"] = list(wants)
    return _put(text, "customers", customer, row)


def update(text: str, what: str, prefix: str, said: Sequence[str]) -> str:
    """`what`: policy or type, of all topics below the prefix that have no longer one."""
    key = {"policy": "let", "type": "has"}[what]
    return _put(text, {"policy": "policies", "type": "types"}[what], prefix, {key: list(said)})


def event(text: str, ident: str, client: str, topic: str, session: str, sealed: bool) -> str:
    """One more event grant."""
    doc = _doc(text)
    row = tomlkit.table()
    row.update({"id": ident, "client": client, "topic": topic})
    if session:
        row["session"] = session
    if sealed:
        row["sealed"] = True
    events = doc.get("events")
    if events is None:
        events = doc["events"] = tomlkit.aot()
    if not isinstance(events, tomlkit.items.AoT):
        raise BadPlain("events", "events are an array of tables", "[[events]]")
    events.append(row)
    return doc.as_string()


def revoke(text: str, what: str, name: str) -> str:
    """`what`: customer, event (its id), policy or type."""
    doc = _doc(text)
    if what == "event":
        if not _drop_events(doc, lambda row: row.get("id") == name):
            raise BadPlain("events", f"there is no event grant {name}", "sealmq blinded show SITE")
        return doc.as_string()
    table = {"customer": "customers", "policy": "policies", "type": "types"}[what]
    if name not in doc.get(table, {}):
        raise BadPlain(table, f"there is no {what} {name}", "sealmq blinded show SITE")
    del cast(MutableMapping[str, Any], doc[table])[name]
    return doc.as_string()


def leave(text: str, names: Collection[str]) -> str:
    """Without these customers, and without event grants of theirs."""
    doc = _doc(text)
    _drop_events(doc, lambda row: row.get("client") in names)
    customers = cast(MutableMapping[str, Any], doc.get("customers", {}))
    for name in [name for name in customers if name in names]:
        del customers[name]
    return doc.as_string()


def _drop_events(doc: tomlkit.TOMLDocument, gone: Callable[[Mapping[str, Any]], bool]) -> bool:
    events = doc.get("events", [])
    left = [row for row in events if not gone(row)]
    if len(left) == len(events):
        return False
    del doc["events"]
    if left:
        doc["events"] = tomlkit.aot()
        for row in left:
            cast(Any, doc["events"]).append(row)
    return True


def change(text: str, said: Mapping[str, Any]) -> str:
    """One of these as JSON has it: {"revoke": {"customer": "X"}}. BadPlain."""
    (what, row), *more = said.items()
    try:
        if more or not isinstance(row, Mapping):
            raise TypeError
        if what == "grant":
            return grant(text, row["customer"], row["has"], row.get("wants"))
        if what == "update":
            kind = "policy" if "policy" in row else "type"
            return update(text, kind, row[kind], row["let" if kind == "policy" else "has"])
        if what == "event":
            sealed, session = row.get("sealed", False), row.get("session", "")
            return event(text, row["id"], row["client"], row["topic"], session, sealed)
        if what == "revoke":
            ((kind, name),) = row.items()
            return revoke(text, kind, name)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, BadPlain):
            raise
    raise BadPlain(str(what), "that is no change", '{"revoke": {"customer": "X"}}')


def _put(text: str, table: str, name: str, row: Mapping[str, Any]) -> str:
    doc = _doc(text)
    if table not in doc:
        doc[table] = tomlkit.table(is_super_table=True)
    rows = cast(MutableMapping[str, Any], doc[table])
    made = tomlkit.table()
    made.update(row)
    rows[name] = made
    return doc.as_string()


def _doc(text: str) -> tomlkit.TOMLDocument:
    read(text)  # what is wrong already is not made worse
    return tomlkit.parse(text)


def covering(made: Plain, topic: str) -> list[Granted]:
    """The event grants that are good for a topic."""
    return [
        one
        for one in made.events
        if below(topic, one.topic) and not any(below(topic, but) for but in made.but(one))
    ]


def granted(made: Plain, client: str, topic: str) -> list[str]:
    """Policy ids under which a client may publish there."""
    return [one.id for one in covering(made, topic) if one.client == client]
