"""What a backup puts back counts for nothing before somebody has said it again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from families.owners.owners_site import LOC, ROOT, SITE, START, People
from families.owners.test_owners_archive import ID, SAID, asked, command, stored
from sealmq.families import registry
from sealmq.families.owners import records as rows
from sealmq.families.owners import rules, signing
from sealmq.families.owners.assertions import from_fields
from sealmq.families.records import FamilyRecord
from sealmq.store import Store
from sealmq.store.database import rewrite, set_identity

ALL = SITE + LOC + ROOT
CONTRACT = "https://example.org/terms"
MINE = {"app": "APP", "topic": "mine/{user}", "owner": "user", "control": "none"}


def restored(site: People, text: str = "") -> People:
    """The site of a backup that was made now, a second later."""
    held = list(site.rows.values())
    changed = registry.put_back(lambda name: held if name == "owners" else [], site.now + 1000)
    now = {row.key: row for row in (*held, *changed)}
    found = People(text or site.text, tuple(now.values()))
    found.rows.update(now)
    found.now = site.now + 2000
    return found


def test_an_assertion_put_back_by_a_backup_opens_nothing_before_its_author_confirms_it() -> None:
    site = People(ALL)
    taken, stays = site.lets("ann", "bob"), site.lets("ann", "cat")
    old = restored(site)
    site.command("ann", "retract", id=taken)
    assert not old.may("bob", "loc/ann/hall"), "what ann has retracted since"
    assert not old.may("cat", "loc/ann/hall"), "nor what she has not: nobody knows that"
    assert old.command("ann", "who-can", topic="loc/ann/hall")["who"] == ["admin", "ann"]
    assert {one["suspended"] for one in old.command("ann", "list")["assertions"]} == {True}
    for name in ("bob", "cat", "admin"):
        assert old.command(name, "confirm", id=taken) == rules.NO_SUCH, "it is ann's to say"
    assert json.loads(old.owners.greet(old.conn("ann").ask.who))["unconfirmed"] == 2
    said = old.command("ann", "confirm", id=stays)
    assert said["assertion"]["licensees"] == ["cat"]
    assert "suspended" not in said["assertion"]
    assert old.command("ann", "retract", id=taken) == {"id": taken}
    assert old.may("cat", "loc/ann/hall")
    assert not old.may("bob", "loc/ann/hall")
    assert old.owners.greet(old.conn("ann").ask.who) == b""
    assert old.command("ann", "confirm", id=stays) == rules.NO_SUCH, "it counts already"
    assert old.lets("ann", "dan") in old.owners.state.assertions
    assert old.may("dan", "loc/ann/hall")
    again = restored(old)
    assert not again.may("cat", "loc/ann/hall"), "what was confirmed once is not so for ever"
    assert not again.may("dan", "loc/ann/hall")
    other = People(ALL, tuple(old.rows.values()))
    assert other.may("cat", "loc/ann/hall"), "a start alone suspends nothing"


def test_who_may_not_say_it_any_more_confirms_nothing() -> None:
    text = ALL + '[families.owners]\ndelegation = "static"\n'
    site = People(text)
    of = {"app": "APP", "type": "LOC"}
    right = site.lets("ann", "bob", actions=["RECEIVE", "CHANGE_POLICY"], **of)
    passed_on = site.lets("bob", "cat", owner="ann", **of)
    assert site.may("cat", "loc/ann/hall")
    old = restored(site)
    assert old.command("bob", "confirm", id=passed_on) == rules.NO_CHANGE_POLICY
    assert old.command("ann", "retract", id=right)
    assert not old.may("cat", "loc/ann/hall")
    assert old.command("bob", "confirm", id=passed_on) == rules.NO_CHANGE_POLICY
    changed = restored(site)
    made = changed.command("ann", "modify", id=right, licensees=["bob"], actions=["RECEIVE"], **of)
    assert made["id"] == right
    assert changed.may("bob", "loc/ann/hall"), "what is said anew counts"
    assert not changed.may("cat", "loc/ann/hall")


def test_a_session_without_the_key_confirms_nothing_that_is_not_signed() -> None:
    site = People(ALL)
    unsigned = site.lets("ann", "bob")
    key = Ed25519PrivateKey.generate().private_bytes_raw()
    site.command("ann", "key", public=signing.public_of(key).hex())
    said = {"licensees": ["cat"], "actions": ["RECEIVE"]}
    text = from_fields(said, "ann", "ann").text("00c0ffee")
    signed = site.command("ann", "assert", **said, signature=signing.sign(key, text).hex())["id"]
    old = restored(site)
    assert old.command("ann", "confirm", id=unsigned) == rules.SIGNATURE
    assert old.command("ann", "confirm", id=signed)["assertion"]["public"]
    assert [old.may(name, "loc/ann/hall") for name in ("bob", "cat")] == [False, True]


def test_types_contracts_and_emergencies_put_back_open_nothing_either() -> None:
    site = People(ALL)
    site.command("admin", "advertise", type="MINE", **MINE)
    site.lets("ann", "bob", condition=f'contract("{CONTRACT}")')
    site.lets("ann", "cat", actions="EMERGENCY")
    site.command("bob", "sign", address=CONTRACT)
    site.command("cat", "break-glass", owner="ann", minutes=60, reason="fire")
    assert site.may("dan", "mine/ann")
    assert site.may("bob", "loc/ann/hall")
    assert site.may("cat", "loc/ann/hall")
    old = restored(site)
    for one in old.command("ann", "list")["assertions"]:
        old.command("ann", "confirm", id=one["id"])
    assert not old.may("bob", "loc/ann/hall"), "he may have withdrawn from it"
    assert old.command("bob", "contracts")["contracts"] == [{"address": CONTRACT, "signed": False}]
    old.command("bob", "sign", address=CONTRACT)
    assert old.may("bob", "loc/ann/hall")
    assert not old.may("cat", "loc/ann/hall"), "the emergency may have been closed"
    assert old.command("ann", "openings")["openings"][0]["reason"] == "fire", "it stays told"
    assert old.deliver("dan", "mine/ann").rule == rules.DELIVER_NO_TYPE
    old.lets("admin", "eve", owner="*", app="APP", actions="ADVERTISE")
    taken = old.command("eve", "advertise", type="TAKES", **{**MINE, "topic": "mine/{x}"})
    assert taken == rules.MALFORMED, "its topics are nobody else's meanwhile"
    assert [t["type"] for t in old.command("admin", "types")["types"] if t.get("suspended")] == [
        "MINE"
    ]
    assert old.command("eve", "confirm", id="APP/MINE") == rules.NO_SUCH
    assert old.command("admin", "confirm", id="APP/MINE")["type"]["type"] == "MINE"
    assert old.may("dan", "mine/ann")


def test_a_store_says_it_of_what_it_was_and_the_operator_confirms(tmp_path: Path) -> None:
    """In the store that a restore puts there, and in one that is not known: the file itself."""
    site = People(ALL)
    id = site.lets("ann", "bob")
    path = tmp_path / "mediator.db"

    def opened(records: list[Any]) -> list[FamilyRecord]:
        async def story() -> list[FamilyRecord]:
            store = Store.open(path)
            try:
                await store.commit(records)
                return store.rows("owners")
            finally:
                store.close()

        return asyncio.run(story())

    def may() -> bool:
        return People(ALL, tuple(opened([]))).may("bob", "loc/ann/hall")

    opened(list(site.rows.values()))
    assert may()
    set_identity(path, bytes(16), lambda held: registry.put_back(held, START + 1))
    assert not may()
    first = opened([])
    rewrite(path, lambda held: registry.put_back(held, START + 2))
    assert opened([]) == first, "once is enough"
    assert first[0].client == "ann", "on whom it counts stays"
    rewrite(path, lambda held: [r for row in held("owners") if (r := rows.confirmed(row, START))])
    assert may()
    assert opened([])[0].key == f"a/{id}"
    assert rows.confirmed(opened([])[0], START) is None


def at(since: int, *until: int) -> FamilyRecord:
    """The assertion of the archive's tests as a restore has left it."""
    row = stored(10, ["Bob"])
    value = {**rows.decoded(row.value or b""), "suspended": [[since, *until]]}
    return FamilyRecord(row.family, row.key, json.dumps(value, separators=(",", ":")).encode())


def test_who_could_have_received_it_then_knows_when_it_was_suspended() -> None:
    made = command(10, "Alice", f"assert {SAID}")
    gone = command(20, "Alice", f"retract {SAID}")
    back = command(50, "Alice", f"confirm {ID} suspended=30{SAID.removeprefix(ID)}")
    ended = command(60, "Alice", f"retract {SAID}")
    # Made at 10, retracted at 20; a backup puts it back at 30, and she confirms it at 50.
    for log, held in (([made, gone, back, ended], ()), ([made, gone], (at(30, 50),))):
        words = [asked(t, log, held=held).word for t in (15, 25, 40, 55)]
        assert words == ["yes", "no", "no", "yes"], log
    assert asked(70, [made, gone, back, ended]).word == "no"
    # Nobody has confirmed it; and once she retracted it instead.
    assert [asked(t, [made], held=(at(30),)).word for t in (15, 40)] == ["yes", "no"]
    never = command(50, "Alice", f"retract {ID} suspended=30{SAID.removeprefix(ID)}")
    assert [asked(t, [made, never]).word for t in (15, 40, 55)] == ["yes", "no", "no"]


def test_whoever_has_to_confirm_a_type_is_told_so_however_many_there_are() -> None:
    """Of types an answer holds the first ones."""
    site = People(ALL)
    for n in range(60):
        kind = {"app": "APP", "topic": f"t{n}/{{user}}", "owner": "user"}
        site.now += 1000
        assert site.command("admin", "advertise", type=f"T{n:02}", **kind)["type"]
    old = restored(site)
    for n in range(50):
        old.now += 1000
        old.command("admin", "confirm", id=f"APP/T{n:02}")
    answer = old.command("admin", "types")
    assert answer["left_out"]
    waits = {one["type"] for one in answer["types"] if one.get("suspended")}
    assert waits == {f"T{n}" for n in range(50, 60)}
