"""Purposes: what a client says is one text, and is said again after a reconnect."""

from __future__ import annotations

import pytest

from client_peer import Peer, client_of, play, until
from sealmq.client import Options, Refused
from sealmq.families.purposes.client import Purposes
from sealmq.families.purposes.texts import Reader
from sealmq.mqtt import Subscribe
from sealmq_spec import purposes
from sealmq_spec.errors import Denied, Malformed, Misuse
from sealmq_spec.topics import split_token


def test_reservations_and_presubscriptions_are_commands_of_the_family() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            say = Purposes(client)
            await say.reserve("a/#", ["billing", "x,y|{}"], {"ads"})
            await say.reserve("a/+")
            await say.release("a/#")
            await say.presubscribe("old one", "a/#", "billing/tax")
            await say.presubscribe("old one", "a/#", None)
            await say.set("mode", "fos")
            await say.set("mode", "")
        read = [Reader().read(body.decode()) for family, body in peer.commands]
        assert {family for family, _ in peer.commands} == {"purposes"}
        assert read == [
            ("reserve", "a/#", ("billing", "x,y|{}"), ("ads",)),
            ("reserve", "a/+", (), ()),
            ("release", "a/#", (), ()),
            ("presub", "old one", "a/#", "billing/tax"),
            ("presub", "old one", "a/#", ""),
            ("set", "mode", "fos", ""),
            ("set", "mode", "", ""),
        ]

    play(story)


def test_a_query_gives_the_gateways_text() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            say = Purposes(client)
            said = await say.query("eip", "a/b")
            assert said == "done: " + purposes.query("eip", "a/b")
            peer.knobs.refuse["purposes"] = (5, "purposes.query.not-entitled", "not yours")
            with pytest.raises(Refused, match="not yours") as refused:
                await say.query("mode")
            assert isinstance(refused.value, Denied)
            assert refused.value.rule == "purposes.query.not-entitled"
            for change in (say.reserve("a"), say.presubscribe("app", "a", "x")):
                with pytest.raises(Refused, match="not yours"):
                    await change

    play(story)


def test_what_no_text_says_never_leaves() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            say = Purposes(client)
            with pytest.raises(Misuse, match="not one text"):
                await say.reserve("a", "billing")
            for wrong in (
                say.reserve("a#", ["x"]),
                say.reserve("a", ["x", "x"]),
                say.reserve("a", [""]),
                say.reserve("a", ["\udc80"]),
                say.release(""),
                say.presubscribe("a/b", "a", "x"),
                say.presubscribe("app", "a", ""),
                say.query("everything"),
                client.subscribe("a", purpose=""),
                client.subscribe("a", purpose="x//y"),
                client.subscribe("a" * 1020, purpose="billing"),
                client.unsubscribe("a", purpose="\0"),
            ):
                with pytest.raises(Malformed):
                    await wrong
        assert not peer.commands
        assert not peer.link.filters

    play(story)


def test_what_no_family_hears_is_refused_with_what_there_is() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            with pytest.raises(Malformed, match=r"'urgency' .* there is: where, purpose"):
                await client.subscribe("a", urgency="high")
            assert await client.subscribe("a", purpose=None) == [0]
        assert list(peer.link.filters) == ["a"]

    play(story)


def test_a_filter_for_two_purposes_and_for_none_are_three_subscriptions() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            assert await client.subscribe("a/#", "b", qos=1, purpose="billing") == [1, 1]
            await client.subscribe("a/#", qos=2, purpose="ads")
            await client.subscribe("a/#")
            link, access = peer.link, purposes.access
            bills, ads = access("a/#", "billing"), access("a/#", "ads")
            assert link.filters == {bills: 1, access("b", "billing"): 1, ads: 2, "a/#": 0}
            await client.unsubscribe("a/#", purpose="billing")
            assert list(link.filters) == [access("b", "billing"), ads, "a/#"]

    play(story)


def test_a_refused_subscription_is_told_by_its_filter() -> None:
    async def story(peer: Peer) -> None:
        wire = purposes.access("a/#", "ads")
        peer.knobs.refuse[wire] = (5, "purposes.subscribe.prohibited", "not for ads")
        async with client_of(peer) as client:
            answers = await client.subscribe_each("a/#", "b", purpose="ads")
            assert isinstance(answers[0], Refused)
            assert (answers[0].subject, answers[0].rule) == ("a/#", "purposes.subscribe.prohibited")
            assert str(answers[0]).startswith("subscription to a/# refused by rule purposes.")
            assert answers[1] == 0

    play(story)


def test_a_reconnect_subscribes_again_with_the_same_purposes_and_qos() -> None:
    async def story(peer: Peer) -> None:
        refused = purposes.access("c", "ads")
        peer.knobs.refuse[refused] = (5, "purposes.subscribe.prohibited", "not for ads")
        options = Options(reconnect=True, connect_timeout=5, timeout=5)
        async with client_of(peer, options=options) as client:
            await client.subscribe("a/#", qos=1, purpose="billing")
            await client.subscribe("a/#", qos=2)
            await client.subscribe("b", qos=2, purpose="ads")
            await client.unsubscribe("b", purpose="ads")
            await client.subscribe_each("c", purpose="ads")
            before = peer.link
            before.cut()
            await until(lambda: peer.link is not before and len(peer.link.filters) == 2)
            assert peer.link.filters == {purposes.access("a/#", "billing"): 1, "a/#": 2}
            [packet] = [p for p in peer.link.packets if isinstance(p, Subscribe)]
            assert [split_token(text)[2] for text, _ in packet.filters] == list(peer.link.filters)

    play(story)
