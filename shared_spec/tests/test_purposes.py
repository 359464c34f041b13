"""The texts of purposes as they are written (PURPOSES.md P2), against a naive writer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from paho.mqtt.client import Client as Paho
from paho.mqtt.enums import CallbackAPIVersion

import purposes_made as made
from purposes_made import accesses, commands, filters, written
from sealmq_spec import purposes
from sealmq_spec.errors import Malformed, Misuse
from sealmq_spec.topics import check_filter
from vectorgen.purposes import Texts

quick = settings(max_examples=150, deadline=None, derandomize=True, database=None)
more = settings(max_examples=300, deadline=None, derandomize=True, database=None)


@more
@given(st.one_of(commands, accesses))
def test_what_is_written_is_what_the_naive_writer_writes(value: tuple[Any, ...]) -> None:
    assert written(value, purposes) == written(value, Texts())


@quick
@given(st.one_of(commands, accesses), st.one_of(commands, accesses))
def test_two_values_have_two_texts(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assume(one != other)
    assert written(one, purposes) != written(other, purposes)


@more
@given(filters, st.one_of(filters, made.purposes))
def test_two_filters_that_differ_in_one_sign(filt: str, sign: str) -> None:
    """Neighbours: the same filter with an escape, a wildcard's word or a sign exchanged."""
    text = purposes.access(filt, "p")
    others = {filt.replace("#", "HASH"), filt.replace("+", "PLUS")}
    others |= {Texts().filter(filt), Texts().name(filt), sign, filt + "/", "/" + filt}
    for near in others - {filt}:
        try:
            check_filter(near)
        except Malformed:
            continue
        assert purposes.access(near, "p") != text


@quick
@given(filters, made.purposes)
def test_strict_client_libraries_take_it(filt: str, purpose: str) -> None:
    text = purposes.access(filt, purpose)
    check_filter(text)
    assert not set("#+\0") & set(text)
    assert Paho._filter_wildcard_len_check(text.encode()).value == 0


def test_paho_sends_it() -> None:
    """With no connection it says so after its checks; a raw wildcard out of place is refused."""
    paho = Paho(CallbackAPIVersion.VERSION2)
    text = purposes.access("a/+/#", "b")
    assert paho.subscribe(text)[0] == 4
    with pytest.raises(ValueError, match="Invalid subscription filter"):
        paho.subscribe("!AP/a/+/#{b}")


LONG = "f" * 1024


@pytest.mark.parametrize(
    "call",
    [
        lambda: purposes.access("a", ""),
        lambda: purposes.access("a", "b//c"),
        lambda: purposes.access("a", "/b"),
        lambda: purposes.access("a", "b/"),
        lambda: purposes.access("a", "b" * 129),
        lambda: purposes.access("a", "é" * 65),
        lambda: purposes.access("a", "b\0"),
        lambda: purposes.access("a", "\ud800"),
        lambda: purposes.access("\ud800", "b"),
        lambda: purposes.access("", "b"),
        lambda: purposes.access("a/#/b", "b"),
        lambda: purposes.access("f" * 1018, "b"),
        lambda: purposes.access("{" * 400, "b"),
        lambda: purposes.reserve("a", ("b", "b")),
        lambda: purposes.reserve("a", (), ("",)),
        lambda: purposes.reserve("a#", ("b",)),
        lambda: purposes.reserve("a", [f"{n:05}" for n in range(1400)]),
        lambda: purposes.release(""),
        lambda: purposes.presubscribe("", "a", "b"),
        lambda: purposes.presubscribe("c/d", "a", "b"),
        lambda: purposes.presubscribe("c", "a#", "b"),
        lambda: purposes.setting("", "x"),
        lambda: purposes.setting("a/b", "x"),
        lambda: purposes.setting("a", "x/y"),
        lambda: purposes.query("mode", "x"),
        lambda: purposes.query("eip"),
        lambda: purposes.query("eip", "a/+"),
        lambda: purposes.query("reservations"),
        lambda: purposes.query("presubs", "a/b"),
        lambda: purposes.query("all", "a"),
        lambda: purposes.check_purpose("a\0"),
    ],
)
def test_what_has_no_text(call: Any) -> None:
    with pytest.raises(Malformed):
        call()


def test_one_text_for_several_purposes_is_a_mistake() -> None:
    with pytest.raises(Misuse):
        purposes.reserve("a", "billing")


def test_limits_are_reached() -> None:
    assert len(purposes.access("f" * 1017, "b")) == 1024
    many = [f"{n:05}" for n in range(1192)]
    assert len(purposes.reserve(LONG, many, ("12345",))) == 8192
    with pytest.raises(Malformed):
        purposes.reserve(LONG, many, ("123456",))
