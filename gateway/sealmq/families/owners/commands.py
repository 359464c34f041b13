"""Commands of owners (OWNERS.md): what they would change. A body is a JSON object, "do" says what.

Each changes the policy in one step, or not at all. A refusal tells nothing of what others have
said.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from sealmq.near import near
from sealmq_spec.const import MAX_COMMAND

from ..api import Later, Proposal, deny
from ..ask import Who
from ..pace import A_SECOND, BURST
from ..topiclabels import NONE
from . import emergencies, questions, records, rules, settings, signing
from .actions import ADVERTISE, AUTHENTICATE, words
from .assertions import Assertion, BadAssertion, from_fields, from_keynote, keynote
from .chains import TooMuch, about
from .events import BadType, EventType
from .names import EVERYBODY, is_principal
from .state import State
from .turn import MAX_ANSWER, Answer, Body, Refused, Turn, dump, listed, proposal, read_text

MOST_ALIKE = 32
"""Assertions of one author about one owner and one licensee: each may cost each question a look."""
MOST_ADVERTISED = 512
MOST_ADDRESS = 160
SLICE = 2000
"""Assertions that are looked at in one go."""
MOST_LISTED = 128
"""Assertions in an answer: the shortest take more than 100 bytes each."""
CUT = 1000
"""Characters of the condition of an assertion that is longer than an answer."""
# Bytes of an answer around one assertion.
_AROUND = 128


def command(state: State, who: Who, body: bytes, now_ms: int) -> Answer | Later:
    """Read and judge one."""
    wait_ms = state.pace.take(who.client, now_ms)
    if wait_ms:
        often = f"at most {BURST} at once, then {A_SECOND} a second"
        return deny(rules.TOO_MANY, f"{often}; again in {wait_ms} ms")
    if who.label == NONE or not is_principal(who.client):
        return deny(rules.DISABLED, "the client has no label, or no name that can own events")
    try:
        found = _read(body)
        do = found.pop("do", None)
        entry = COMMANDS.get(do) if isinstance(do, str) else None
        if entry is None:
            raise Refused(rules.MALFORMED, f'"do" is one of: {", ".join(COMMANDS)}')
        run, keys = entry
        for key in found:
            if key not in keys:
                raise Refused(rules.MALFORMED, f"{key[:32]!r} is unknown; {near(key, keys)}")
        answer = run(Turn(state, who, now_ms), found)
        return Later(_in_bounds(answer.go_on)) if isinstance(answer, Later) else answer
    except Refused as refused:
        return deny(refused.rule, _fitting(refused.reason))
    except (BadAssertion, BadType) as error:
        hint = f"; {error.hint}" if error.hint else ""
        return deny(rules.MALFORMED, _fitting(f"{error}{hint}"))
    except TooMuch:
        return _TOO_MUCH


_TOO_MUCH = deny(rules.TOO_MUCH, "too many assertions would have to be looked at")


def _in_bounds(go_on: Callable[[], Any]) -> Callable[[], Any]:
    def bounded() -> Any:
        try:
            return go_on()
        except TooMuch:
            return _TOO_MUCH

    return bounded


def _read(body: bytes) -> Body:
    if len(body) > MAX_COMMAND:
        raise Refused(rules.MALFORMED, f"a command has at most {MAX_COMMAND} bytes")
    try:
        found = json.loads(body.decode(), object_pairs_hook=_once)
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise Refused(rules.MALFORMED, "a command is a JSON object, with each key once") from None
    if not isinstance(found, dict):
        raise Refused(rules.MALFORMED, "a command is a JSON object")
    try:
        dump(found).encode()
    except UnicodeEncodeError:
        raise Refused(rules.MALFORMED, "a command has texts of Unicode, no halves") from None
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _fitting(text: str) -> str:
    """At most 200 bytes."""
    return text.encode(errors="replace")[:197].decode(errors="ignore")


# --- assertions ----------------------------------------------------------------------------------


def _said(turn: Turn, body: Body) -> Assertion:
    """The assertion that the client makes; its own name is the authorizer."""
    fields = {key: value for key, value in body.items() if key not in ("signature", "id")}
    if "keynote" in fields:
        if len(fields) > 1 or not isinstance(fields["keynote"], str):
            raise Refused(rules.MALFORMED, "keynote is a text, and stands alone")
        found = keynote(fields["keynote"])
        if len(found) != 1:
            raise Refused(rules.MALFORMED, "one assertion a command")
        made = from_keynote(found[0], turn.client)
    else:
        made = from_fields(fields, turn.client, turn.client)
    if made.authorizer != turn.client:
        raise Refused(rules.NOT_ITS_OWN, "the authorizer is the client that says it")
    unknown = settings.unknown_names(
        made, turn.state.types.by_key.values(), turn.state.settings.externals
    )
    if unknown:
        raise Refused(rules.MALFORMED, f"{unknown[0]}; {unknown[1]}")
    return made


def _may_assert(turn: Turn, made: Assertion) -> str:
    """By which rule. Refused."""
    rights, state = turn.rights, turn.state
    owner = about(made)
    kinds = rights.kinds(made)
    acts = made.actions & made.condition.actions
    if not kinds and acts & ~(AUTHENTICATE | ADVERTISE):
        raise Refused(rules.MALFORMED, "there is no such event type: sealmq owners types")
    if not state.settings.dynamic and not (
        (made.app or made.condition.app) and (made.type or made.condition.type)
    ):
        raise Refused(rules.MALFORMED, "where delegation is static, name application and type")
    if not rights.may_change(made, owner):
        if owner == EVERYBODY:
            raise Refused(rules.ALL_OWNERS, "it is about all owners' events: name one, or yourself")
        raise Refused(
            rules.NO_CHANGE_POLICY, f"this client may not change the policy of {owner}'s events"
        )
    lacking = rights.lacking(made, owner)
    if lacking:
        raise Refused(
            rules.NOT_ITS_OWN, f"this client may not {', '.join(words(lacking))} there itself"
        )
    return rules.BY_OWNER if owner == turn.client else rules.BY_RIGHT


def _signature(turn: Turn, made: Assertion, body: Body) -> bytes:
    """Checked, if the owner has a key, or a type asks for it. Refused."""
    text = body.get("signature", "")
    try:
        signature = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        signature = b""
    key = turn.state.key_of(turn.client)
    if not key:
        if text:
            raise Refused(rules.SIGNATURE, "no key is on record for it: sealmq owners key")
        if any(kind.signed for kind in turn.rights.kinds(made)):
            raise Refused(rules.SIGNATURE, "assertions about this type are signed")
        return b""
    if not signing.is_signed(key, made.text(turn.who.site), signature):
        raise Refused(rules.SIGNATURE, "a key is on record, and this is not its signature")
    return signature


def _room(turn: Turn, made: Assertion, besides: str = "") -> None:
    owner = about(made)
    for licensee in made.licensees:
        held = turn.state.index.held(owner, licensee)
        mine = sum(one.authorizer == turn.client and one.id != besides for one in held)
        if mine >= MOST_ALIKE:
            raise Refused(rules.FULL, f"{MOST_ALIKE} assertions let {licensee} do something there")


def _kept(turn: Turn, made: Assertion, body: Body, id: str = "") -> Assertion:
    signature = _signature(turn, made, body)
    return Assertion(
        made.authorizer,
        made.licensees,
        made.owner,
        made.app,
        made.type,
        made.actions,
        made.condition,
        id=id or records.identity(made, turn.now_ms),
        at_ms=turn.now_ms,
        signature=signature,
    )


def _keep(
    turn: Turn, kept: Assertion, rule: str, what: str, suspended: records.Spans = ()
) -> Proposal:
    reply = {"id": kept.id, "assertion": _shown(turn, kept)}
    return proposal([records.assertion(kept)], rule, _about(what, kept, suspended), reply)


def _assert(turn: Turn, body: Body) -> Answer:
    made = _said(turn, body)
    rule = _may_assert(turn, made)
    _room(turn, made)
    kept = _kept(turn, made, body)
    if kept.id in turn.state.assertions:
        # The client chooses what is hashed: it must not find another one's place.
        raise Refused(rules.FULL, "there is one of this id already: say it again")
    return _keep(turn, kept, rule, "assert")


def _modify(turn: Turn, body: Body) -> Answer:
    before = _own(turn, body)
    if before.authorizer != turn.client:
        raise Refused(rules.NOT_ITS_OWN, "only its author modifies it; others retract")
    made = _said(turn, body)
    rule = _may_assert(turn, made)
    _room(turn, made, before.id)
    kept = _kept(turn, made, body, before.id)
    suspended = turn.state.suspension(turn.client, records.ASSERTION + before.id)
    return _keep(turn, kept, rule, "modify", suspended)


def _confirm(turn: Turn, body: Body) -> Answer:
    """What a backup has put back counts again, if its author may still say it."""
    id = read_text(body, "id", 130)
    if "/" in id:
        return _confirm_type(turn, id)
    made = _own(turn, body)
    suspended = turn.state.suspension(turn.client, records.ASSERTION + id)
    if not suspended or not turn.state.bearers.bears(turn.client, made.at_ms):
        raise Refused(rules.NO_SUCH, "none of this id waits for this client to confirm it")
    # One from before the key is said anew, signed: whoever has the session alone could say it.
    _signature(turn, made, {"signature": made.signature.hex()})
    rule = _may_assert(turn, made)
    _room(turn, made)
    row = records.assertion(made, records.closed(suspended, turn.now_ms))
    detail = _about("confirm", made, suspended)
    return proposal([row], rule, detail, {"id": id, "assertion": _shown(turn, made)})


def _confirm_type(turn: Turn, id: str) -> Answer:
    app, _, name = id.partition("/")
    kind = turn.state.advertised.get((app, name))
    suspended = turn.state.suspension(turn.client, records.TYPE + id)
    if kind is None or not suspended:
        raise Refused(rules.NO_SUCH, "no type of this name waits for this client to confirm it")
    if not turn.rights.advertises(kind):
        raise Refused(rules.NO_ADVERTISE, f"this client may not advertise types of {app}")
    row = records.event_type(kind, records.closed(suspended, turn.now_ms))
    return proposal([row], rules.BY_AUTHOR, f"confirm {id}", {"id": id, "type": _type(kind)})


def _retract(turn: Turn, body: Body) -> Answer:
    before = _own(turn, body)
    rule = _may_see(turn, before)
    suspended = turn.state.suspension(before.authorizer, records.ASSERTION + before.id)
    detail = _about("retract", before, suspended)
    return proposal([records.gone(records.ASSERTION + before.id)], rule, detail, {"id": before.id},
                     urgent=True)  # fmt: skip


def _own(turn: Turn, body: Body) -> Assertion:
    """The assertion of this id, if the client may change it, and it is not sealmq.toml's."""
    id = read_text(body, "id", 64)
    found = turn.state.assertions.get(id)
    if found is None or not _may_see(turn, found):
        raise Refused(rules.NO_SUCH, "no assertion of this id is the client's to change")
    if not found.at_ms:
        raise Refused(rules.NO_SUCH, "it stands in sealmq.toml: [[families.owners.policy]]")
    return found


def _may_see(turn: Turn, made: Assertion) -> str:
    """By which rule the client may see and retract it, or "": not at all."""
    owner = about(made)
    if owner == turn.client:
        return rules.BY_OWNER
    if made.authorizer == turn.client and turn.state.bearers.bears(turn.client, made.at_ms):
        return rules.BY_AUTHOR
    return rules.BY_RIGHT if turn.rights.changes_all(made, owner) else ""


def _about(what: str, made: Assertion, suspended: records.Spans = ()) -> str:
    since = f"suspended={suspended[-1][0]} " if suspended else ""
    return (
        f"{what} {made.id} {since}by={made.authorizer} owner={about(made)} "
        f"licensees={','.join(made.licensees)} app={made.app} type={made.type} "
        f"actions={','.join(words(made.actions))} condition={made.condition.text}"
    )


def _shown(turn: Turn, made: Assertion) -> dict[str, Any]:
    """As answers have it. What is longer than one is cut: else it would hide itself, and others."""
    shown = {"id": made.id, "at_ms": made.at_ms, **made.fields}
    if made.signature:
        key = turn.state.key_of(made.authorizer)
        shown |= {"site": turn.who.site, "public": key.hex(), "signature": made.signature.hex()}
    text = made.condition.text
    if len(text) > CUT and len(dump(shown).encode()) > MAX_ANSWER - _AROUND:
        shown |= {"condition": f"{text[:CUT]}…", "cut": True}
    return shown


def _list(turn: Turn, body: Body) -> Later:
    owner, by = read_text(body, "owner", 64, ""), read_text(body, "by", 64, "")
    after = read_text(body, "after", 64, "")
    state = turn.state
    if owner and owner != EVERYBODY:
        left: Iterator[Assertion] = iter(list(state.index.about(owner)))
    elif owner:
        left = iter(list(state.index.about(EVERYBODY)))
    else:
        left = iter([*state.assertions.values()])
    found: list[Assertion] = []

    def go_on() -> Answer | None:
        some = list(islice(left, SLICE))
        for made in some:
            mine = made.authorizer == turn.client or about(made) == turn.client
            if (not owner and not mine) or (by and made.authorizer != by) or made.id <= after:
                continue
            if mine or _may_see(turn, made):
                found.append(made)
        if len(some) == SLICE:
            return None
        found.sort(key=lambda made: made.id)
        rows = [
            _shown(turn, made) | ({"suspended": True} if state.is_suspended(made) else {})
            for made in found[:MOST_LISTED]
        ]
        return listed("assertions", rows, left_out=len(found) - len(rows))

    return Later(go_on)


# --- event types ---------------------------------------------------------------------------------

_TYPE_KEYS = (
    "app",
    "topic",
    "owner",
    "control",
    "admin",
    "attributes",
    "granularity",
    "signed",
    "derives",
)


def _advertise(turn: Turn, body: Body) -> Answer:
    state = turn.state
    name = read_text(body, "type", 64)
    row = {key: value for key, value in body.items() if key != "type"}
    app = read_text(row, "app", 64)
    before = state.advertised.get((app, name))
    # What is suspended is nobody else's meanwhile.
    known = state.advertised | state.types.by_key
    others = [kind for key, kind in known.items() if key != (app, name)]
    made = settings.type_of(name, row, others, state.settings.externals, turn.client, turn.now_ms)
    if not turn.rights.advertises(made):
        raise Refused(rules.NO_ADVERTISE, f"this client may not advertise types of {app}")
    if made.derives:
        # An attribute is what others' conditions rest on, whatever the application.
        raise Refused(rules.NO_ADVERTISE, "which events tell an attribute says sealmq.toml alone")
    if any(kind.key == made.key for kind in state.settings.types):
        raise Refused(rules.TYPE_TAKEN, "it stands in sealmq.toml")
    if before is not None and turn.client not in (before.by, before.admin):
        raise Refused(rules.TYPE_TAKEN, f"{app} has a type {name} of another client")
    if before is None and len(state.advertised) >= MOST_ADVERTISED:
        raise Refused(rules.FULL, f"the site has {MOST_ADVERTISED} types that were advertised")
    if before is not None and before.topic == made.topic:
        # What it holds of its topics goes on being its own.
        made = replace(made, at_ms=before.at_ms)
    detail = f"advertise {app}/{name} topic={made.topic} owner={made.owner} control={made.control}"
    return proposal([records.event_type(made)], rules.BY_RIGHT, detail, {"type": _type(made)})


def _withdraw(turn: Turn, body: Body) -> Answer:
    key = read_text(body, "app", 64), read_text(body, "type", 64)
    before = turn.state.advertised.get(key)
    if before is None or turn.client not in (before.by, before.admin):
        raise Refused(rules.NO_SUCH, "no type of this name is the client's to withdraw")
    name = "/".join(key)
    return proposal(
        [records.gone(records.TYPE + name)],
        rules.BY_AUTHOR,
        f"withdraw {name}",
        {"app": key[0], "type": key[1]},
        urgent=True,
    )


def _types(turn: Turn, body: Body) -> Answer:
    state = turn.state
    mine = {
        key: {**_type(kind), "suspended": True}
        for key, kind in state.advertised.items()
        if kind.by == turn.client and state.suspension(kind.by, records.TYPE + "/".join(key))
    }
    found = {key: _type(kind) for key, kind in state.types.by_key.items()} | mine
    # What waits for this client first: there may be more types than an answer holds.
    return listed("types", [found[key] for key in sorted(found, key=lambda k: (k not in mine, k))])


def _type(kind: EventType) -> dict[str, Any]:
    return {"type": kind.name, **records.type_fields(kind), "by": kind.by}


# --- contracts, keys, mediators ------------------------------------------------------------------


def _sign(turn: Turn, body: Body) -> Answer:
    address = read_text(body, "address", MOST_ADDRESS)
    withdraw = body.get("withdraw", False)
    if type(withdraw) is not bool or not address:
        raise Refused(rules.MALFORMED, "address is where the contract lies, withdraw true or false")
    if withdraw:
        row, what = records.gone(records.consent_key(turn.client, address)), "withdraw from"
    else:
        row, what = records.consent(turn.client, address, turn.now_ms), "sign"
    reply = {"address": address, "signed": not withdraw}
    return proposal([row], rules.BY_ITSELF, f"{what} {address}", reply, urgent=withdraw)


def _contracts(turn: Turn, body: Body) -> Answer:
    """Which contracts are asked for where the client is licensed, and those that it has signed."""
    owner = read_text(body, "owner", 64, "")
    state, client = turn.state, turn.client
    owners = [owner] if owner else sorted(state.settings.clients)[:SLICE]
    found: dict[str, None] = {}
    for name in owners:
        for made in state.index.licensing(name, client) if is_principal(name) else ():
            found |= dict.fromkeys(made.condition.contracts)
    if not owner:
        found |= dict.fromkeys(state.consents.get(client, ()))
    rows = [{"address": text, "signed": state.signed(client, text)} for text in sorted(found)]
    return listed("contracts", rows)


def _key(turn: Turn, body: Body) -> Answer:
    state, client = turn.state, turn.client
    try:
        new = bytes.fromhex(read_text(body, "public", 64))
        signature = bytes.fromhex(read_text(body, "signature", 128, ""))
    except ValueError:
        raise Refused(rules.MALFORMED, "public and signature are hex") from None
    if new and len(new) != signing.KEY_BYTES:
        raise Refused(rules.MALFORMED, "an Ed25519 public key has 32 bytes")
    if client in state.settings.keys:
        raise Refused(rules.SIGNATURE, "its key stands in sealmq.toml: [families.owners.keys]")
    old = state.key_of(client)
    text = signing.key_text(turn.who.site, client, new)
    if old and not signing.is_signed(old, text, signature):
        raise Refused(rules.SIGNATURE, "a new key is signed with the one that is on record")
    if not new:
        row = records.gone(records.KEY + client)
    else:
        row = records.public_key(client, new, turn.now_ms)
    return proposal([row], rules.BY_ITSELF, f"key {new.hex() or 'none'}", {"public": new.hex()})


def _appoint(turn: Turn, body: Body) -> Answer:
    number = body.get("mediator")
    if type(number) is not int or not 0 <= number < 1 << 24:
        raise Refused(rules.MALFORMED, "mediator is the number of one, 0 for any")
    if number:
        row = records.mediator(turn.client, number, turn.now_ms)
    else:
        row = records.gone(records.MEDIATOR + turn.client)
    return proposal([row], rules.BY_ITSELF, f"appoint {number}", {"mediator": number})


_ASSERT_KEYS = (
    "authorizer",
    "licensees",
    "owner",
    "app",
    "type",
    "actions",
    "condition",
    "keynote",
    "signature",
)
COMMANDS: Mapping[str, tuple[Callable[[Turn, Body], Answer | Later], tuple[str, ...]]] = {
    "assert": (_assert, _ASSERT_KEYS),
    "modify": (_modify, ("id", *_ASSERT_KEYS)),
    "retract": (_retract, ("id",)),
    "confirm": (_confirm, ("id",)),
    "list": (_list, ("owner", "by", "after")),
    "who-can": (questions.who_can, questions.KEYS),
    "explain": (questions.explained, (*questions.KEYS, "client")),
    "advertise": (_advertise, ("type", *_TYPE_KEYS)),
    "withdraw": (_withdraw, ("app", "type")),
    "types": (_types, ()),
    "sign": (_sign, ("address", "withdraw")),
    "contracts": (_contracts, ("owner",)),
    "key": (_key, ("public", "signature")),
    "appoint": (_appoint, ("mediator",)),
    "break-glass": (emergencies.break_glass, ("owner", "reason", "minutes")),
    "close-glass": (emergencies.close_glass, ("owner", "client")),
    "openings": (emergencies.openings, ()),
    "seen": (emergencies.seen, ("to",)),
}
