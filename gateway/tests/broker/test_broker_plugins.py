"""The second fence inside amqtt: its plugins, exactly ours, deny by default."""

from __future__ import annotations

import asyncio
import dataclasses
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path

import amqtt
import pytest
from amqtt.contexts import Action, BrokerConfig
from amqtt.session import Session

from sealmq.broker.credentials import Credentials
from sealmq.broker.embedded import MediatorBroker, config
from sealmq.broker.process import AMQTT

OURS = Credentials("mediator", "p" * 43)


def in_broker(
    check: Callable[[MediatorBroker], Awaitable[bool]], made: BrokerConfig | None = None
) -> bool:
    """Run the check in a broker that serves nobody."""

    async def run() -> bool:
        return await check(MediatorBroker(made or config(OURS, "127.0.0.1:0")))

    return asyncio.run(run())


def session(name: str, user: str | None, password: str | None) -> Session:
    made = Session()
    made.client_id, made.username, made.password = name, user, password
    return made


def authenticated(broker: MediatorBroker, who: Session) -> Awaitable[bool]:
    return broker._authenticate(who, broker.listeners_config["default"])


def test_the_version_is_the_one_that_was_read() -> None:
    project = Path(__file__).resolve().parents[3] / "pyproject.toml"
    wanted = tomllib.loads(project.read_text())["project"]["dependencies"]
    assert f"amqtt=={AMQTT}" in wanted
    assert amqtt.__version__ == AMQTT


def test_exactly_our_two_plugins_are_loaded() -> None:
    async def names(broker: MediatorBroker) -> bool:
        found = [type(plugin).__name__ for plugin in broker.plugins_manager.plugins]
        return found == ["MediatorAuth", "MediatorTopics"]

    assert in_broker(names)


@pytest.mark.parametrize(
    ("name", "user", "password", "expected"),
    [
        ("sealmq/1/a", "mediator", "p" * 43, True),
        ("sealmq/1/a", "mediator", "p" * 42, False),
        ("sealmq/1/a", "mediator", None, False),
        ("sealmq/1/a", None, "p" * 43, False),
        ("sealmq/1/a", None, None, False),
        ("other", "mediator", "p" * 43, False),
        ("", "mediator", "p" * 43, False),
    ],
)
def test_who_is_authenticated_may_use_topics_and_nobody_else(
    name: str, user: str | None, password: str | None, expected: bool
) -> None:
    async def check(broker: MediatorBroker) -> bool:
        who = session(name, user, password)
        for action in Action:
            assert not await broker._topic_filtering(who, "a/b", action)
        judged = await authenticated(broker, who)
        for action in Action:
            assert await broker._topic_filtering(who, "a/b", action) is judged
        assert not await broker._topic_filtering(who, "", Action.PUBLISH)
        assert who.password is None
        return judged

    assert in_broker(check) is expected


def test_what_has_been_allowed_once_is_judged_anew() -> None:
    async def check(broker: MediatorBroker) -> bool:
        who = session("sealmq/1/a", OURS.user, OURS.password)
        assert await authenticated(broker, who)
        who.password = "wrong"
        assert not await authenticated(broker, who)
        return await broker._topic_filtering(who, "a/b", Action.PUBLISH)

    assert not in_broker(check)


def test_without_plugins_everything_is_denied() -> None:
    """amqtt by itself allows every topic then."""

    async def check(broker: MediatorBroker) -> bool:
        who = session("sealmq/1/a", OURS.user, OURS.password)
        return await authenticated(broker, who) or await broker._topic_filtering(
            who, "a/b", Action.PUBLISH
        )

    assert not in_broker(check, dataclasses.replace(config(OURS, "127.0.0.1:0"), plugins={}))


def test_credentials_compare_and_do_not_show() -> None:
    assert OURS.match("mediator", "p" * 43)
    assert OURS.match("mediator", b"p" * 43)
    assert not OURS.match("mediato", "p" * 43)
    assert not OURS.match(None, None)
    assert not OURS.match("mediator", b"\xff" * 43)
    assert "ppp" not in repr(OURS)
    assert Credentials.draw() != Credentials.draw()
