"""What somebody tries who wants more than owners give: each must fail, and say nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence

import pytest

from families.owners.owners_site import LOC, ROOT, SITE, People
from families.owners.test_owners_family import ALL, policy
from sealmq.families.api import Ask, FamilyConfigError, FamilyRecord, Verdict
from sealmq.families.owners import commands, rules
from sealmq.families.owners.chains import MOST_LOOKED
from sealmq.families.owners.events import TLV, write_attributes
from sealmq.families.owners.expressions import MOST_TEXT
from sealmq.site.errors import ConfigError


@pytest.fixture
def site() -> People:
    return People(ALL)


def test_alice_s_assertion_that_names_no_owner_spreads_nobody_else_s_events(site: People) -> None:
    site.lets("bob", "ann")
    site.lets("ann", "cat")
    assert site.may("ann", "loc/bob/hall")
    assert not site.may("cat", "loc/bob/hall")


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({"owner": "bob"}, rules.NO_CHANGE_POLICY),
        ({"owner": "*"}, rules.ALL_OWNERS),
        ({"owner": "bob", "condition": 'owner == "ann"'}, rules.MALFORMED),
        ({"owner": "*", "condition": 'owner == "bob"'}, rules.NO_CHANGE_POLICY),
        ({"condition": 'owner == "bob"'}, rules.MALFORMED),
        ({"authorizer": "bob"}, rules.NOT_ITS_OWN),
        ({"authorizer": "POLICY"}, rules.NOT_ITS_OWN),
        ({"authorizer": "*"}, rules.MALFORMED),
        ({"owner": "+"}, rules.MALFORMED),
        ({"owner": "POLICY"}, rules.MALFORMED),
        ({"owner": "owner"}, rules.MALFORMED),
        ({"owner": "b*"}, rules.MALFORMED),
        ({"owner": "#"}, rules.MALFORMED),
        ({"owner": ""}, rules.MALFORMED),
        ({"licensees": ["+"]}, rules.MALFORMED),
        ({"licensees": ["POLICY"]}, rules.MALFORMED),
        ({"licensees": ["c*"]}, rules.MALFORMED),
        ({"licensees": []}, rules.MALFORMED),
        ({"licensees": "*", "actions": "PUBLISH"}, rules.NOT_ITS_OWN),
        ({"actions": ["*"]}, rules.NO_CHANGE_POLICY),
        ({"actions": "ADVERTISE", "app": "APP"}, rules.NOT_ITS_OWN),
        ({"actions": "AUTHENTICATE"}, rules.NO_CHANGE_POLICY),
        ({"type": "NONE"}, rules.MALFORMED),
        ({"condition": "plaice == 1"}, rules.MALFORMED),
        ({"condition": 'place == "a" place == "b"'}, rules.MALFORMED),
        ({"keynote": "Authorizer: bob\nLicensee: cat\nConditions: true"}, rules.MALFORMED),
        ({"color": 1}, rules.MALFORMED),
        ({"signature": "00"}, rules.SIGNATURE),
    ],
)
def test_an_assertion_by_somebody_who_may_not_make_it_is_refused(
    site: People, more: dict[str, object], refused: str
) -> None:
    said = {"licensees": ["cat"], "actions": ["RECEIVE"], **more}
    assert site.command("ann", "assert", **said) == refused
    assert site.rows == {}
    assert not site.may("cat", "loc/bob/hall")


def test_keynote_text_is_its_author_s_own(site: People) -> None:
    text = 'Authorizer: {}\nLicensee: cat\nConditions: action == "RECEIVE" -> "true";'
    assert site.command("ann", "assert", keynote=text.format("bob")) == rules.NOT_ITS_OWN
    both = "\n\n".join((text.format("ann"), text.format("bob")))
    assert site.command("ann", "assert", keynote=both) == rules.MALFORMED
    assert site.command("ann", "assert", keynote=text.format("ann"))["assertion"]["owner"] == "ann"
    assert site.may("cat", "loc/ann/hall")


def test_who_may_receive_may_not_pass_it_on(site: People) -> None:
    site.lets("ann", "bob")
    assert site.lets("bob", "cat", owner="ann") == rules.NO_CHANGE_POLICY
    # Nor if the row gets into the store past the command.
    row = {"authorizer": "bob", "licensees": ["cat"], "owner": "ann", "app": "", "type": "",
           "actions": ["RECEIVE"], "condition": "", "at": 1}  # fmt: skip
    site.commit([FamilyRecord("owners", "a/x", json.dumps(row).encode())])
    assert not site.may("cat", "loc/ann/hall")
    site.lets("ann", "bob", actions="CHANGE_POLICY")
    assert site.may("cat", "loc/ann/hall"), "with the right it counts"


def test_who_may_change_the_policy_gives_no_more_than_it_has(site: People) -> None:
    site.lets("ann", "bob", actions="CHANGE_POLICY")
    assert site.lets("bob", "cat", owner="ann") == rules.NOT_ITS_OWN
    site.lets("ann", "bob", condition='place == "hall"')
    site.lets("bob", "cat", owner="ann")
    assert site.may("cat", "loc/ann/hall")
    assert not site.may("cat", "loc/ann/yard"), "bob's own bound holds for those he lets"


def test_the_requester_s_world_decides_along_the_whole_chain(site: People) -> None:
    site.lets("ann", "bob", actions=["RECEIVE", "CHANGE_POLICY"],
              condition='subscriber != "cat"')  # fmt: skip
    site.lets("bob", "cat", "dan", owner="ann")
    assert site.may("dan", "loc/ann/hall")
    assert not site.may("cat", "loc/ann/hall"), "bob does not launder what ann forbade"


def test_a_cycle_of_delegations_holds_nothing(site: People) -> None:
    both = ["RECEIVE", "CHANGE_POLICY"]
    id = site.lets("ann", "bob", actions=both)
    site.lets("bob", "cat", owner="ann", actions=both)
    site.lets("cat", "bob", owner="ann", actions=both)
    assert site.may("bob", "loc/ann/hall")
    site.command("ann", "retract", id=id)
    for name in ("bob", "cat"):
        assert not site.may(name, "loc/ann/hall")
        assert site.lets(name, "dan", owner="ann") == rules.NO_CHANGE_POLICY


def rows(many: Sequence[Mapping[str, object]]) -> list[FamilyRecord]:
    more = {"app": "", "type": "", "condition": "", "at": 1}
    return [
        FamilyRecord("owners", f"a/{i}", json.dumps({**more, **row}).encode())
        for i, row in enumerate(many)
    ]


def test_a_maze_of_delegations_is_denied_and_not_walked_for_ever(site: People) -> None:
    names = [f"n{i}" for i in range(30)]
    maze = [
        {"authorizer": a, "licensees": [b, "cat"], "owner": "ann",
         "actions": ["RECEIVE", "CHANGE_POLICY"]}
        for a, b in itertools.permutations(names, 2)
    ]  # fmt: skip
    site.commit(rows(maze))
    assert site.deliver("cat", "loc/ann/hall").rule == rules.TOO_MUCH
    assert site.lets("cat", "dan", owner="ann") == rules.TOO_MUCH
    assert site.may("ann", "loc/ann/hall"), "who asks past it is not held up"
    assert len(maze) > MOST_LOOKED


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "true" + ")" * 10_000,
        "!" * 10_000 + "true",
        "(" * 500 + "true" + ")" * 500,
        "!" * 500 + "true",
        "(" * 20 + "true" + ")" * 20,
        "!" * 60 + "true",
        " && ".join(['place == "a"'] * 120),
        " || ".join(f'{c}{i} == "a"' for i, c in enumerate("a" * 30)),
        "place in [" + ", ".join(["1"] * 1000) + "]",
        'place == "' + "a" * MOST_TEXT + '"',
        "place == " + "9" * 400,
        "\ud800",
        'place == "\x00"',
    ],
)
def test_a_condition_bomb_is_refused(site: People, text: str) -> None:
    assert site.lets("ann", "bob", condition=text) == rules.MALFORMED
    assert site.faults == []


def test_one_author_makes_nobody_look_at_many_assertions(site: People) -> None:
    for i in range(commands.MOST_ALIKE):
        site.now += 1
        assert site.lets("ann", "bob", condition=f'place == "p{i}"') != rules.FULL
    assert site.lets("ann", "bob") == rules.FULL
    assert site.lets("ann", "cat") != rules.FULL


def test_commands_are_paced(site: People) -> None:
    got = {site.lets("ann", "bob", condition="nonsense") for _ in range(300)}
    assert rules.TOO_MANY in got
    assert site.lets("cat", "bob") != rules.TOO_MANY


@pytest.mark.parametrize("name", ["POLICY", "owner"])
def test_no_client_is_called_as_what_means_something_else(name: str) -> None:
    text = ALL.replace("[clients]\n", f'[clients]\n{name} = {{ label = "all" }}\n')
    with pytest.raises((FamilyConfigError, ConfigError), match="means something else"):
        People(text)
    site = People(ALL)
    assert not site.conn(name).deliver("loc/ann/hall", "all", 0, site.now).allow
    assert site.lets(name, "bob") == rules.DISABLED


def test_whoever_bears_a_name_anew_has_nothing_of_the_one_before(site: People) -> None:
    site.lets("ann", "bob", "cat")
    site.lets("cat", "*", condition='subscriber == "bob"')
    site.command("bob", "sign", address="urn:x")
    site.command("bob", "key", public="11" * 32)
    site.lets("dan", "bob", condition='contract("urn:x")')
    assert all(site.may("bob", f"loc/{name}/hall") for name in ("ann", "cat", "dan"))
    kept = site.deliver("cat", "loc/ann/hall")
    since = {"bob": site.now + 1}
    assert site.engine.noted(since), "in force before the rows are put right"
    for name in ("ann", "cat", "dan"):
        assert not site.may("bob", f"loc/{name}/hall")
    assert site.may("cat", "loc/ann/hall"), "others keep what they were let"
    assert kept.allow
    site.commit(site.engine.bearers(since, lambda: list(site.rows.values())))
    assert not site.engine.noted(since)
    assert "b/bob" in site.rows
    again = People(ALL, tuple(site.rows.values()))
    again.engine.noted(since)
    for one in (site, again):
        assert not any(one.may("bob", f"loc/{name}/hall") for name in ("ann", "cat", "dan"))
        assert one.may("cat", "loc/ann/hall")


def test_what_an_earlier_bearer_has_asserted_or_owned_is_nobody_s(site: People) -> None:
    site.lets("ann", "bob")
    site.lets("admin", "cat", owner="ann", app="APP", actions="RECEIVE")
    site.lets("ann", "dan", actions="EMERGENCY")
    site.command("dan", "break-glass", owner="ann", reason="x", minutes=60)
    readers = ("bob", "cat", "dan")
    assert all(site.may(name, "loc/ann/hall") for name in readers)
    since = {"ann": site.now + 1}
    site.engine.noted(since)
    assert not any(site.may(name, "loc/ann/hall") for name in readers)
    site.commit(site.engine.bearers(since, lambda: list(site.rows.values())))
    assert sorted(site.rows) == ["b/ann"]
    assert site.may("ann", "loc/ann/hall"), "who bears it now has what every owner has"


def test_an_assertion_put_back_by_a_backup_opens_nothing_before_the_site_is_reopened(
    site: People,
) -> None:
    site.lets("ann", "bob")
    backup = tuple(site.rows.values())
    [id] = [key.removeprefix("a/") for key in site.rows]
    site.command("ann", "retract", id=id)
    restored = People(ALL, backup)
    restored.engine.close_site("restored")
    assert restored.deliver("bob", "loc/ann/hall").rule == "engine.closed"
    assert restored.lets("ann", "cat") == "engine.closed"


def test_nobody_sees_or_retracts_what_is_not_his(site: People) -> None:
    id = site.lets("ann", "bob")
    for name in ("bob", "cat"):
        assert site.command(name, "retract", id=id) == rules.NO_SUCH
        assert site.command(name, "retract", id="nothing") == rules.NO_SUCH, "nor whether it is"
        assert site.command(name, "modify", id=id, licensees=["cat"], actions=["RECEIVE"]) == (
            rules.NO_SUCH
        )
        assert site.command(name, "list")["assertions"] == []
        assert site.command(name, "list", owner="ann")["assertions"] == []
        assert site.command(name, "who-can", topic="loc/ann/hall") == rules.NO_QUESTION
        assert site.command(name, "explain", topic="loc/ann/hall", client="dan") == (
            rules.NO_QUESTION
        )
    assert site.command("bob", "explain", topic="loc/ann/hall") == {
        "allow": True, "action": "RECEIVE", "client": "bob", "owner": "ann", "type": "LOC",
        "chain": [], "left_out": 0,
    }  # fmt: skip
    assert site.command("ann", "retract", id="policy.1") == rules.NO_SUCH
    assert site.command("admin", "retract", id="policy.1") == rules.NO_SUCH, "it is the file's"
    assert site.may("bob", "loc/ann/hall")
    assert site.command("admin", "retract", id=id) == {"id": id}


def test_an_advertised_type_takes_no_topics_of_another(site: People) -> None:
    new = {"app": "APP", "topic": "loc/{user}/{place}", "owner": "user"}
    assert site.command("ann", "advertise", type="MINE", **new) == rules.MALFORMED
    new["topic"] = "mine/{user}"
    assert site.command("ann", "advertise", type="MINE", **new) == rules.NO_ADVERTISE
    assert site.command("admin", "advertise", type="LOC", **new) == rules.TYPE_TAKEN
    assert site.command("admin", "advertise", type="MINE", **{**new, "app": "OTHER"}) == (
        rules.NO_ADVERTISE
    )
    assert site.command("admin", "advertise", type="MINE", **new)["type"]["by"] == "admin"
    assert site.may("ann", "mine/ann")
    site.lets("admin", "bob", owner="*", app="APP", actions="ADVERTISE")
    assert site.command("bob", "advertise", type="MINE", **new) == rules.TYPE_TAKEN
    assert site.command("bob", "withdraw", app="APP", type="MINE") == rules.NO_SUCH
    assert site.command("bob", "advertise", type="OURS", **{**new, "topic": "our/{user}"})["type"]
    assert site.command("admin", "withdraw", app="APP", type="MINE")
    assert site.deliver("ann", "mine/ann").rule == rules.DELIVER_NO_TYPE


def test_the_settings_types_go_before_one_that_was_advertised(site: People) -> None:
    new = {"app": "APP", "topic": "mine/{user}", "owner": "user"}
    site.command("admin", "advertise", type="MINE", **new)
    theirs = LOC.replace("LOC", "TAKEN").replace("loc/{user}/{place}", "mine/{user}")
    site.reload(ALL + theirs.replace('owner = "user"', 'owner = "user"\ncontrol = "none"'))
    found = site.owners.state.types.of(["mine", "ann"])
    assert found is not None
    assert found.name == "TAKEN"


def test_a_signature_is_of_one_assertion_one_site_and_one_key() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from sealmq.families.owners import signing
    from sealmq.families.owners.assertions import BadAssertion, from_fields

    site = People(ALL.replace('admin = "admin"\n', 'admin = "admin"\nsigned = true\n', 1))
    key = Ed25519PrivateKey.generate().private_bytes_raw()
    said = {"licensees": ["bob"], "actions": ["RECEIVE"], "app": "APP", "type": "LOC"}
    made = from_fields(said, "ann", "ann")
    right = signing.sign(key, made.text("00c0ffee")).hex()
    assert site.command("ann", "assert", **said) == rules.SIGNATURE, "the type asks for one"
    assert site.command("ann", "key", public=signing.public_of(key).hex())
    other = signing.sign(key, made.text("00c0ffef")).hex()
    bent = f"{int(right[:2], 16) ^ 1:02x}{right[2:]}"
    for wrong in ("", "zz", bent, other):
        assert site.command("ann", "assert", **said, signature=wrong) == rules.SIGNATURE
    wider = {**said, "licensees": ["bob", "cat"]}
    assert site.command("ann", "assert", **wider, signature=right) == rules.SIGNATURE
    document = site.command("ann", "assert", **said, signature=right)["assertion"]
    assert site.may("bob", "loc/ann/hall")
    assert signing.verify(document, signing.public_of(key)).licensees == ("bob",)
    for key_, value in (
        ("licensees", ["cat"]), ("site", "00c0ffef"), ("public", "11" * 32), ("site", "\ud800"),
        ("condition", 'place == "\ud800"'),
    ):  # fmt: skip
        with pytest.raises(BadAssertion):
            signing.verify({**document, key_: value})
    with pytest.raises(BadAssertion):
        signing.verify(document, b"\1" * 32)
    new = Ed25519PrivateKey.generate().private_bytes_raw()
    public = signing.public_of(new)
    assert site.command("ann", "key", public=public.hex()) == rules.SIGNATURE, "a stolen session"
    old = signing.sign(key, signing.key_text("00c0ffee", "ann", public)).hex()
    assert site.command("ann", "key", public=public.hex(), signature=old)
    # A row without a signature counts for nothing, however it came into the store.
    row = {"authorizer": "ann", "owner": "ann", "licensees": ["cat"], "actions": ["RECEIVE"]}
    site.commit(rows([row]))
    assert not site.may("cat", "loc/ann/hall")


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{}", b'{"do":1}', b'{"do":"assert","do":"list"}', b"\xff", b"[" * 8000,
     b'{"do":"fly"}', b'{"do":"list","x":1}', b'{"do":"retract","id":1}', b'{"do":"sign"}',
     b'{"do":"sign","address":""}', b'{"do":"sign","address":"a","withdraw":1}',
     b'{"do":"key","public":"xx"}', b'{"do":"key","public":"00"}', b'{"do":"appoint"}',
     b'{"do":"appoint","mediator":true}', b'{"do":"who-can","topic":"a/+"}',
     b'{"do":"who-can","topic":"none"}', b'{"do":"who-can","topic":"loc/ann/x","action":"FLY"}',
     b'{"do":"who-can","topic":"loc/ann/x","attributes":{"speed":1}}',
     b'{"do":"advertise","type":"T","app":"APP","topic":"a/{b","owner":"b"}',
     b'{"do":"advertise","type":"T","app":"APP","topic":"a/{b}","owner":"c"}',
     b'{"do":"advertise","type":"a/b","app":"APP","topic":"a/{b}","owner":"b"}',
     b'{"do":"break-glass","owner":"*","reason":"x","minutes":5}',
     b'{"do":"assert","licensees":{"a":1},"actions":["RECEIVE"]}',
     b'{"do":"assert","licensees":["bob"],"actions":[["RECEIVE"]]}',
     b'{"do":"assert","licensees":["bob"],"actions":"RECEIVE","condition":7}',
     b'{"do":"list","after":"\\u0000"}'],
)  # fmt: skip
def test_a_body_that_says_nothing_is_refused_and_no_defect(site: People, body: bytes) -> None:
    got = site.conn("ann").command("owners", body, site.now)
    assert isinstance(got, Verdict)
    assert len(got.reason.encode()) <= 200
    assert got.rule.startswith("owners.command.")
    assert site.faults == []


def test_modifying_replaces_in_one_step(site: People) -> None:
    id = site.lets("ann", "bob")
    assert site.may("bob", "loc/ann/hall")
    got = site.command("ann", "modify", id=id, licensees=["cat"], actions=["RECEIVE"])
    assert got["id"] == id
    assert len(site.rows) == 1
    assert (site.may("bob", "loc/ann/hall"), site.may("cat", "loc/ann/hall")) == (False, True)
    refused = site.command("ann", "modify", id=id, licensees=["dan"], actions=["PUBLISH"])
    assert refused == rules.NOT_ITS_OWN
    assert site.may("cat", "loc/ann/hall"), "what is refused changes nothing"


def test_what_the_settings_say_by_somebody_without_the_right_counts_for_nothing() -> None:
    more = policy('authorizer = "ann"\nowner = "*"\nlicensees = ["cat"]\nactions = ["RECEIVE"]')
    site = People(SITE + LOC + ROOT + more)
    assert site.may("cat", "loc/ann/hall")
    assert not site.may("cat", "loc/bob/hall")


def test_a_right_that_is_not_over_all_owners_is_none_to_assert_about_all(site: People) -> None:
    site.lets("admin", "bob", owner="*", app="APP", actions=["RECEIVE", "CHANGE_POLICY"],
              condition='owner != "ann"')  # fmt: skip
    assert site.lets("bob", "cat", owner="*", app="APP") == rules.ALL_OWNERS
    site.lets("bob", "cat", owner="dan", app="APP")
    assert site.lets("bob", "cat", owner="ann", app="APP") == rules.NO_CHANGE_POLICY
    assert [site.may("cat", f"loc/{name}/hall") for name in ("dan", "ann", "eve")] == [
        True, False, False,
    ]  # fmt: skip


def test_what_is_looked_at_but_once_has_to_be_a_right_over_all_of_it() -> None:
    site = People(ALL + '[families.owners]\ndelegation = "static"\n')
    kind = {"app": "APP", "type": "LOC"}
    site.lets("ann", "bob", **kind)
    site.lets("ann", "bob", actions="CHANGE_POLICY", condition='place == "hall"', **kind)
    assert site.lets("bob", "cat", owner="ann", **kind) == rules.NO_CHANGE_POLICY
    assert site.lets("ann", "cat") == rules.MALFORMED, "of types to come nobody knows"
    now = People(ALL)
    now.lets("ann", "bob", **kind)
    now.lets("ann", "bob", actions="CHANGE_POLICY", condition='place == "hall"', **kind)
    now.lets("bob", "cat", owner="ann", **kind)
    assert now.may("cat", "loc/ann/hall")
    assert not now.may("cat", "loc/ann/yard"), "what is judged each time may be granted in part"


def test_only_its_author_modifies_an_assertion(site: People) -> None:
    mine = site.lets("ann", "bob")
    theirs = site.lets("admin", "cat", owner="ann", app="APP")
    said = {"licensees": ["dan"], "actions": ["RECEIVE"], "owner": "ann", "app": "APP"}
    assert site.command("admin", "modify", id=mine, **said) == rules.NOT_ITS_OWN
    assert site.command("ann", "modify", id=theirs, **said) == rules.NOT_ITS_OWN
    assert site.command("ann", "retract", id=theirs) == {"id": theirs}
    assert not site.may("dan", "loc/ann/hall")


def test_who_comes_to_the_site_is_a_sender_too(site: People) -> None:
    assert site.may("admin", "chat/1", sender="ann")
    assert not site.may("admin", "chat/1", sender="zoe")
    site.reload(ALL.replace("[clients]\n", '[clients]\nzoe = { label = "all" }\n'))
    assert site.may("admin", "chat/1", sender="zoe")


class UnderLabel(Ask):
    """About a message that anybody with the label's key could have put at the broker."""

    grant = None


def test_sealed_attributes_that_others_than_mediators_may_have_written_count_for_nothing(
    site: People,
) -> None:
    who = site.conn("ann").who
    ask = UnderLabel(who, site.engine.attributes, {}, ("subs", ""))
    ask.fill("deliver", "car/ann", site.now, "all", tlv={TLV: write_attributes({"speed": 1})})
    assert site.owners.deliver(ask).rule == rules.DELIVER_ATTRIBUTES
