"""Random policies, events and changes: chains, plans and cache answer as the definition does."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from families.owners import naive_owners as naive
from families.owners.naive_owners import CLIENTS, EXTERNALS, KINDS, Event, Kind, Tree, World
from families.owners.owners_site import FOREVER, HEAD, People
from sealmq.families.api import FamilyRecord
from sealmq.families.attributes import Attribute
from sealmq.families.owners.facts import subject
from sealmq.families.owners.where import encode

ATTRIBUTES = '{ speed = "int", flag = "bool", whose = "text" }'
TYPES = "".join(
    f'[families.owners.types.{kind.name}]\napp = "{kind.app}"\n'
    f'topic = "{kind.first}/{{user}}/{{place}}/{{number:int}}"\nowner = "{kind.owner}"\n'
    f'control = "{kind.control}"\n' + (f"attributes = {ATTRIBUTES}\n" if kind.sealed else "")
    for kind in KINDS
)


def site(dynamic: bool) -> str:
    return (
        HEAD
        + "[labels]\nall = []\n[clients]\n"
        + "".join(f'{name} = {{ label = "all" }}\n' for name in (*CLIENTS, "zoe"))
        + '[policy]\norder = ["labels", "owners"]\n'
        + "".join(
            f'[attributes.{name}]\nsource = "file"\nof = "{of}"\npath = "/x"\n'
            for name, of in EXTERNALS.items()
        )
        + f'[families.owners]\ndelegation = "{"dynamic" if dynamic else "static"}"\n'
        + TYPES
    )


class Both:
    """The family and the definition, side by side."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.world = World(dynamic=draw.random() < 0.7)
        self.people = People(site(self.world.dynamic))
        # By client: filters as they are sent, the kind that they reach, and what they ask for.
        self.subs: dict[str, dict[str, tuple[Kind, Tree | None]]] = {}
        for _ in range(draw.randint(3, 14)):
            self.put()
        if draw.random() < 0.4:
            who = draw.choice((*CLIENTS, "*"))
            self.put("41", naive.Said("POLICY", (who,), "*", "", "", ("SUBSCRIBE",), None))
            self.put("42", naive.Said("POLICY", (who,), "*", "", "", ("CHANGE_POLICY",), None))

    def row(self, key: str, value: dict[str, Any] | None) -> None:
        raw = None if value is None else naive.json_bytes(value)
        self.people.commit([FamilyRecord("owners", key, raw)])

    def put(self, id: str = "", said: naive.Said | None = None) -> None:
        draw = self.draw
        said = said or naive.said(draw)
        # A row may stand in the place of another one.
        id = id or str(draw.randrange(40))
        self.world.said[id] = said
        when = "" if said.when is None else naive.text(said.when)
        self.row(
            f"a/{id}",
            {
                "authorizer": said.by, "licensees": list(said.to), "owner": said.owner,
                "app": said.app, "type": said.kind, "actions": list(said.actions),
                "condition": when, "at": 1,
            },
        )  # fmt: skip

    def change(self) -> None:
        draw, world = self.draw, self.world
        if draw.random() < 0.25:
            self.asks_for()
            return
        what = draw.random()
        if what < 0.3:
            self.put()
        elif what < 0.5 and world.said:
            id = draw.choice(sorted(world.said))
            del world.said[id]
            self.row(f"a/{id}", None)
        elif what < 0.8:
            name = draw.choice(sorted(EXTERNALS))
            of = EXTERNALS[name]
            owner = draw.choice(CLIENTS) if of in ("owner", "pair") else ""
            reader = draw.choice(CLIENTS) if of in ("subscriber", "pair") else ""
            value = draw.choice((*naive.TEXTS, 0, 1, True, False, None))
            world.values.pop((name, owner, reader), None)
            if value is not None:
                world.values[name, owner, reader] = value
            until = 0 if value is None else FOREVER
            row = Attribute(name, subject(of, owner, reader), value, until)
            self.people.engine.take_attributes([row])
        elif what < 0.88:
            who, address = draw.choice(CLIENTS), draw.choice(naive.ADDRESSES)
            signed = (who, address) not in world.signed
            (world.signed.add if signed else world.signed.discard)((who, address))
            key = f"c/{who}/{naive.ADDRESSES.index(address)}"
            self.row(key, {"address": address, "at": 1} if signed else None)
        elif what < 0.95:
            owner, who = draw.choice(CLIENTS), draw.choice(CLIENTS)
            broken = (owner, who) not in world.glass
            (world.glass.add if broken else world.glass.discard)((owner, who))
            glass = {"until": FOREVER, "reason": "r", "seen": False}
            self.row(f"g/{owner}/{who}/1", glass if broken else None)
        else:
            world.dynamic = not world.dynamic
            self.people.reload(site(world.dynamic))

    def asks_for(self) -> None:
        """A reader subscribes, with a condition of its own most often; or leaves one."""
        draw = self.draw
        who, kind = draw.choice(CLIENTS), draw.choice(KINDS)
        mine, conn = self.subs.setdefault(who, {}), self.people.conn(who)
        if mine and draw.random() < 0.4:
            raw = draw.choice(sorted(mine))
            conn.unsubscribed(raw)
            del mine[raw]
            return
        when: Tree | None = naive.tree(draw, 1) if draw.random() < 0.8 else None
        if draw.random() < 0.3:
            name = draw.choice(("owner", "evtType", "app_domain"))
            when = ("==", ("name", name), ("lit", naive.literal(draw, name)))
        raw = f"{kind.first}/#"
        if when is not None:
            if not naive.names(when).isdisjoint(("subscriber", "action", "qos", *EXTERNALS)):
                return  # it asks for what is not the event's
            raw = encode(raw, naive.text(when))
        if self.people.subscribe(who, raw).allow:
            mine[raw] = kind, when

    def wants(self, who: str, event: Event) -> bool:
        """Whether one of the reader's own subscriptions asks for it; without any it is judged as
        what the broker sends all the same. In these contracts are the publisher's.
        """
        whens = [when for kind, when in self.subs.get(who, {}).values() if kind == event.kind]
        return not whens or any(
            when is None or self.world.true(when, event, "RECEIVE", event.sender) for when in whens
        )

    def topic(self, event: Event) -> str:
        return event.kind.topic(event.user, event.place, event.number)

    def ask(self) -> str:
        """One question to both: what it was about, if they agree."""
        draw, world, people = self.draw, self.world, self.people
        event, who = naive.event(draw), draw.choice((*CLIENTS, *CLIENTS, "zoe"))
        what = draw.random()
        if what < 0.25:
            return self.publishes(event)
        if what < 0.4:
            return self.subscribes(who)
        if what < 0.5:
            return self.explains(event, who)
        how = draw.choice((0, 0, 1, 3))
        event.retained = how == 1
        wanted = world.receives(who, event) and self.wants(who, event)
        got = people.deliver(who, self.topic(event), event.sender, how, **event.sealed)
        assert got.allow is wanted, (who, event, got, world)
        assert people.faults == [], people.faults
        return f"deliver {wanted}"

    def explains(self, event: Event, who: str) -> str:
        """Whoever asks who receives it is told what would come of it, and by what."""
        draw, people = self.draw, self.people
        event.retained = False
        wanted = self.world.receives(who, event)
        people.owners.state.tells_all = True
        asked = {"topic": self.topic(event), "sender": event.sender, "attributes": event.sealed}
        by = event.owner if event.owner in CLIENTS else who
        people.now += 1000
        if by == who != event.owner or draw.random() < 0.5:
            got = people.command(by, "explain", client=who, **asked)
            allow = not isinstance(got, str) and got["allow"]
            if allow and event.owner == by and event.kind.control != "none":
                assert got["chain"], (got, event)
        else:
            got = people.command(by, "who-can", **asked)
            allow = not isinstance(got, str) and who in got["who"]
        assert allow is wanted, (who, event, got, self.world)
        assert people.faults == [], people.faults
        return f"explain {wanted}"

    def publishes(self, event: Event) -> str:
        people, kind = self.people, event.kind
        event.retained, event.qos = False, 0
        if kind.sealed:
            # To hide them from the broker needs what the next branch brings; the verdict does not.
            ask = people.conn(event.sender).ask
            from sealmq.families.owners.events import TLV, write_attributes

            tlv = {TLV: write_attributes(event.sealed)} if event.sealed else {}
            ask.fill("publish", self.topic(event), people.now, tlv=tlv)
            allowed = people.owners.publish(ask).allow
        else:
            allowed = people.publish(event.sender, self.topic(event)).allow
        wanted = self.world.holds(event.sender, "PUBLISH", event)
        assert allowed is wanted, (event, self.world)
        return f"publish {wanted}"

    def subscribes(self, who: str) -> str:
        """What is granted as a whole is held for every event that it reaches; and what is refused
        is not held for one of them, or rests on a condition.
        """
        draw, world = self.draw, self.world
        kind = draw.choice([kind for kind in KINDS if kind.control in ("subscribe", "both")])
        user, place = draw.choice((*CLIENTS, "+")), draw.choice((*naive.PLACES, "+"))
        got = self.people.conn(who).subscribe(f"{kind.first}/{user}/{place}/+", 0, self.people.now)
        users = CLIENTS if user == "+" else (user,)
        places = naive.PLACES if place == "+" else (place,)
        all_held = True
        for one, where, number, sender, retained in itertools.product(
            users, places, (0, 1), CLIENTS, (True, False)
        ):
            event = Event(kind, one, where, number, sender, {}, retained, 0)
            all_held = all_held and world.holds(who, "SUBSCRIBE", event)
        if got.allow:
            assert got.rule in ("labels.subscribe.allowed", got.rule)
            is_open = kind.owner == "user" and (user, who) in world.glass
            assert all_held or is_open, (who, kind, user, place, got, world)
        if not got.allow and all_held and got.rule == "owners.subscribe.not-allowed":
            # Only where conditions or single owners add up to all may it say no to what is held.
            rest = [s for s in world.said.values() if s.when is not None or s.owner != "*"]
            wide = World({str(i): s for i, s in enumerate(world.said.values()) if s not in rest},
                         world.dynamic)  # fmt: skip
            event = Event(kind, users[0], places[0], 0, CLIENTS[0], {}, False, 0)
            event.user = "nobody" if kind.owner == "user" and user == "+" else event.user
            assert (who, "SUBSCRIBE") not in wide.pairs(event, who, CLIENTS) or kind.owner != "user"
        return f"subscribe {got.allow}"


def run(seed: int, questions: int) -> dict[str, int]:
    draw = random.Random(seed)
    found: dict[str, int] = {}
    while questions > 0:
        both = Both(draw)
        for _ in range(40):
            if draw.random() < 0.4:
                both.change()
            said = both.ask()
            found[said] = found.get(said, 0) + 1
            questions -= 1
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_family_answers_as_the_definition_does(seed: int) -> None:
    found = run(seed, 1000)
    for said in ("deliver True", "deliver False", "publish True", "publish False",
                 "subscribe True", "subscribe False", "explain True", "explain False"):  # fmt: skip
        assert found.get(said, 0) > 2, found


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 110))
def test_the_family_answers_as_the_definition_does_in_100_000_questions(seed: int) -> None:
    run(seed, 10_000)
