"""A try holds, has failed, or could not be tried; what broke off says nothing about the site."""

from __future__ import annotations

import asyncio

import pytest

from sealmq.broker.errors import Unreachable
from sealmq.broker.target import Target
from sealmq.doctor.at_broker import AtBroker
from sealmq.doctor.errors import Broken
from sealmq.doctor.result import Failed, Result, Untried, attempt, healthy
from sealmq_spec.errors import SealError


@pytest.mark.parametrize(
    ("raised", "ok"),
    [
        (None, True),
        (Failed("it is let in"), False),
        (Untried("no way there"), None),
        (Broken("no CONNACK within 15 s"), None),
        (Unreachable("it takes no connection"), None),
        (SealError("tag"), None),
        (ConnectionResetError("reset"), None),
        (KeyError("a defect"), None),
    ],
)
def test_only_what_must_fail_and_succeeds_is_a_failure(
    raised: Exception | None, ok: bool | None
) -> None:
    async def work() -> str:
        if raised is not None:
            raise raised
        return "refused"

    result = asyncio.run(attempt("a try", work))
    assert result.ok is ok
    assert result.reason


@pytest.mark.parametrize(
    ("of_tries", "of_site"),
    [
        ([True, True], True),
        ([True, None], None),
        ([None, False, True], False),
        ([False, True], False),
    ],
)
def test_a_site_is_healthy_only_when_every_try_holds(
    of_tries: list[bool | None], of_site: bool | None
) -> None:
    assert healthy([Result("a try", ok, "why") for ok in of_tries]) is of_site


@pytest.mark.parametrize("host", ["closed.invalid", "TLS.invalid"])
def test_a_broker_that_nobody_reaches_is_no_refusal_whatever_its_name(host: str) -> None:
    with pytest.raises(Untried):
        asyncio.run(AtBroker(Target(host, 1883), tls=False).anonymous())


@pytest.mark.parametrize(("kept", "advice"), [(1000, False), (100, True), (None, None)])
def test_what_an_external_broker_keeps_for_slow_readers_is_told_and_what_to_set(
    kept: int | None, advice: bool | None
) -> None:
    outside = AtBroker(Target("127.0.0.1", 1883), False, kept)
    result = asyncio.run(attempt("queue", outside.queue))
    assert result.ok is (None if advice is None else True)
    assert ("max_queued_messages 100000" in result.reason) is bool(advice)
    if kept is not None:
        assert f"keeps {kept} messages" in result.reason
        assert f"while {kept // 2} may be out" in result.reason
