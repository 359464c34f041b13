"""What `sealmq doctor` tries where owners say who receives what: labels alone would let the reader
have it.

Topics of the doctor's are events of two types: of one everybody may have all, as the other tries
need it; of the other each event is its owner's, and the writer is one. They stand in sealmq.toml as
long as the doctor is there. Of topics with one level there is no type: one for them would be in the
way of others. So what other families try with such a topic says nothing here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from typing import Any

from sealmq.doctor.at_mediator import NOT_ENFORCED, AtMediator
from sealmq.doctor.canary import Canary
from sealmq.doctor.errors import Broken
from sealmq.doctor.policy import add_row, inline, table, take_key, take_rows
from sealmq.doctor.result import Failed, Try
from sealmq.site.canary import CLIENTS, LOW, READER, STRANGER, WRITER
from sealmq_spec.b64 import b64u

from . import MANIFEST
from .where import PREFIX

APP = "sealmq-doctor"
ALL, OWNED, THIRD = "sealmq-doctor-all", "sealmq-doctor-owned", "sealmq-doctor-third"
MINE = f"sealmq-doctor/owned/by/{WRITER}"
"""An event that belongs to the writer."""
THEIRS = f"sealmq-doctor/owned/by/{STRANGER}"
TOLD = "sealmqDoctor"
"""An attribute that the writer alone tells."""
_TYPES: Mapping[str, Mapping[str, str]] = {
    ALL: {"topic": "sealmq-doctor/{word}", "owner": "sender", "control": "none"},
    # What other families try with three levels.
    THIRD: {"topic": "sealmq-doctor/{word}/any", "owner": "sender", "control": "none"},
    OWNED: {"topic": "sealmq-doctor/owned/by/{user}", "owner": "user", "control": "receive"},
}
Table = MutableMapping[str, Any]


def _rows() -> list[dict[str, Any]]:
    """Assertions of the site about these types alone."""
    what = {"authorizer": "POLICY", "app": APP}
    owned = {**what, "type": OWNED}
    return [
        *(
            {**what, "type": t, "licensees": list(CLIENTS), "actions": ["PUBLISH"]}
            for t in (ALL, THIRD)
        ),
        {**owned, "licensees": ["owner"], "actions": ["PUBLISH", "RECEIVE", "CHANGE_POLICY"]},
    ]


def put_in(doc: Table) -> None:
    """Types, assertions, an attribute, and the topics of the owners' events."""
    for topic in (MINE, THEIRS):
        table(doc, "topics")[topic] = LOW
    table(doc, "attributes")[TOLD] = inline(
        {"source": "client", "by": [WRITER], "of": "subscriber", "valid": "1h"}
    )
    t = table(table(doc, "families"), MANIFEST.name)
    for name, kind in _TYPES.items():
        table(t, "types")[name] = inline({"app": APP, **kind})
    for row in _rows():
        add_row(t, "policy", row)


def take_out(doc: Table) -> None:
    """All of that."""
    for topic in (MINE, THEIRS):
        doc.get("topics", {}).pop(topic, None)
    take_key(doc, "attributes", TOLD)
    if MANIFEST.name not in doc.get("families", {}):
        return
    t = table(table(doc, "families"), MANIFEST.name)
    for name in _TYPES:
        take_key(t, "types", name)
    take_rows(t, "policy", lambda row: row.get("app") == APP)


def as_sent(filter: str) -> str:
    """As it is."""
    return filter


def tries(at: AtMediator) -> Mapping[str, Try]:
    """By name."""
    found = AtOwners(at)
    return {
        "read another's event": found.foreign_event,
        "assert on another's events": found.foreign_assertion,
        "publish another's event": found.foreign_owner,
        "tell an attribute that is not one's to tell": found.foreign_attribute,
        "read on when the owner has retracted": found.retracted,
        "ask for another's events with a condition of one's own": found.own_condition,
    }


class AtOwners:
    """With the canaries of `at`, which have to be connected."""

    def __init__(self, at: AtMediator) -> None:
        self._at = at

    async def foreign_event(self) -> str:
        """The reader's label opens it, and its filter matches."""
        if await self._at.arrives(MINE):
            raise Failed(
                f"an event is delivered to whom its owner has not let have it; {NOT_ENFORCED}"
            )
        return "nothing is delivered"

    async def foreign_assertion(self) -> str:
        """The reader lets itself receive, and the stranger lets the reader."""
        told = set()
        for who in (self._at.reader, self._at.stranger):
            rule = await self._say(who, do="assert", owner=WRITER, licensees=[READER], **_OWN)
            if rule is None:
                await self._say(who, do="retract", id=_id(who))
                raise Failed(f"{who.name} speaks for {WRITER}; {NOT_ENFORCED}")
            told.add(rule or "no answer")
        return ", ".join(sorted(told))

    async def foreign_owner(self) -> str:
        """The writer publishes what would be the stranger's event."""
        return await self._at.must_be_refused(THEIRS)

    async def foreign_attribute(self) -> str:
        """The stranger tells it of the reader."""
        said = {"name": TOLD, "subject": READER, "value": True}
        rule = await self._at.stranger.command("attributes", json.dumps(said))
        if rule is None:
            said["value"] = None
            await self._at.stranger.command("attributes", json.dumps(said))
            raise Failed(f"{STRANGER} tells what {WRITER} alone may tell")
        return rule or "no answer"

    async def retracted(self) -> str:
        """What the owner allows comes, and ends with the next message when he retracts."""
        writer = self._at.writer
        rule = await self._say(writer, do="assert", licensees=[READER], **_OWN)
        if rule is not None:
            raise Broken(f"the owner may not let the reader receive: {rule or 'no answer'}")
        id = _id(writer)
        try:
            if not await self._at.arrives(MINE):
                raise Broken("an event does not arrive though its owner lets the reader have it")
        finally:
            await self._say(self._at.writer, do="retract", id=id)
        if await self._at.arrives(MINE):
            raise Failed(f"it is delivered when the owner has retracted; {NOT_ENFORCED}")
        return "nothing is delivered from then on"

    async def own_condition(self) -> str:
        """Conditions that are met always, and one that is none."""
        told = "nothing is delivered"
        for text in (f'owner == "{WRITER}" || true', "!(", 'subscriber == "x"'):
            filt = f"{PREFIX}{b64u(text.encode()).decode()}/sealmq-doctor/owned/by/+"
            granted = await self._at.reader.subscribe(filt)
            try:
                if await self._at.arrives(MINE):
                    raise Failed(
                        f"a condition of the reader's own opens another's events; {NOT_ENFORCED}"
                    )
            finally:
                if granted:
                    await self._at.reader.unsubscribe(filt)
            if granted and text != f'owner == "{WRITER}" || true':
                raise Failed(f"a subscription with the condition {text!r} is granted")
        return f"SUBACK 0x80, or {told}"

    async def _say(self, who: Canary, **said: Any) -> str | None:
        return await who.command(MANIFEST.name, json.dumps(said))


_OWN: Mapping[str, Any] = {"app": APP, "type": OWNED, "actions": ["RECEIVE"]}


def _id(who: Canary) -> str:
    """Of the assertion that it has made last."""
    try:
        return str(json.loads(who.answer)["id"])
    except (ValueError, KeyError, TypeError):
        raise Broken("the mediator's answer to a command cannot be read") from None
