"""The grammar of purposes (SPEC.md 12) against a naive one, which looks at each character."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from paho.mqtt.client import Client as Paho
from paho.mqtt.enums import CallbackAPIVersion

from naive_purposes import Bad, Naive
from purposes_made import (
    OTHER,
    accesses,
    commands,
    filters,
    pieced,
    purposes,
    spoiled,
    words,
    written,
)
from sealmq_spec.errors import Malformed, Misuse
from sealmq_spec.purposes import WORDS, Grammar, check_purpose
from sealmq_spec.purposes_read import Reader
from sealmq_spec.purposes_words import NAMES
from sealmq_spec.topics import check_filter
from vectorgen.purposes import SEPARATORS, Texts
from vectorgen.purposes import WORDS as SPEC_WORDS

quick = settings(max_examples=150, deadline=None, derandomize=True, database=None)
more = settings(max_examples=300, deadline=None, derandomize=True, database=None)
either = st.booleans()


@cache
def _reader(at: int, published: bool) -> Reader:
    return Reader(OTHER[at], published)


def reader(which: dict[str, str] | None, published: bool = False) -> Reader:
    """One of each, made once."""
    return _reader(OTHER.index(which), published)


def said(by: Any, text: str) -> Any:
    """What a reader makes of a text: of a subscription with its keyword, else of a command."""
    try:
        access = by.read_access(text) if isinstance(by, Reader) else by.access(text)
        return access or by.read(text)
    except (Malformed, Bad):
        return "refused"


def test_the_words_are_the_specs() -> None:
    assert dict(zip(NAMES, WORDS, strict=True)) == SPEC_WORDS


@more
@given(st.one_of(commands, accesses), words, either)
def test_what_is_written_is_read(
    value: tuple[Any, ...], which: dict[str, str] | None, published: bool
) -> None:
    """Value to text to value; the text is the one that the naive writer has."""
    by = reader(which, published)
    text = written(value, by)
    assert text == written(value, Texts(which))
    if len(value) == 2:
        assert by.read_access(text) == value
    else:
        assert by.read_access(text) is None
        assert by.read(text) == value


@more
@given(st.one_of(pieced, spoiled))
@example("!AP/HASH{a}")
@example("!AP/%48ASH{a}")
@example("!AP/a{b}{c}")
@example("!AP/a%7Bb%7D{c}")
@example("!AP/%41{a}")
@example("!AP/%2541{a}")
@example("!AP/%7ba{a}")
@example("!AP//{a}")
@example("!AP/{a}")
@example("!AP/$share/g/%23{a}")
@example("!RESERVE/a{a,a|}")
@example("!PBAC/GET/MODE/{}")
@example("!PBAC/PRESUB/a{b}")
def test_what_is_read_is_written_alike(text: str) -> None:
    """Text to value to text: no second text means the same, and the naive reader agrees."""
    found = said(reader(None), text)
    assert found == said(Naive(), text)
    if found != "refused":
        assert written(found, reader(None)) == text


@more
@given(st.one_of(pieced, spoiled))
@example("!AP/HASH/PLUS{a}")
@example("!AP/SURPLUS/REHASH/HASHED{SURPLUS}")
@example("!RESERVE/a{p|q|r}")
@example("!AP/a{bc")
@example("!PBAC/GET/MODE/{}")
@example("!AP/PLUS/HASH{a}")
@example("!AP/a{b}/x|y,z{c}")
@example("!AP/%{%}{%}")
@example("!AP/%%2525{a}")
@example("!AP/f{a}b}")
@example("!AP/f{a,b}")
def test_the_published_form_against_the_naive_reader(text: str) -> None:
    found = said(reader(None, True), text)
    assert found == said(Naive(published=True), text)
    strict = said(reader(None), text)
    # What is escaped means the same to every listener.
    assert strict in ("refused", found)


@quick
@given(spoiled, words, either)
def test_other_words_against_the_naive_reader(
    text: str, which: dict[str, str] | None, published: bool
) -> None:
    for ours, theirs in zip(SPEC_WORDS, Texts(which).words, strict=True):
        text = text.replace(SPEC_WORDS[ours], Texts(which).words[theirs])
    assert said(reader(which, published), text) == said(Naive(which, published), text)


@quick
@given(st.one_of(commands, accesses), st.one_of(commands, accesses), words)
def test_two_values_have_two_texts(
    one: tuple[Any, ...], other: tuple[Any, ...], which: dict[str, str] | None
) -> None:
    assume(one != other)
    by = reader(which)
    assert written(one, by) != written(other, by)


@more
@given(filters, st.one_of(filters, purposes), words)
def test_two_filters_that_differ_in_one_sign(
    filt: str, sign: str, which: dict[str, str] | None
) -> None:
    """Neighbours: the same filter with an escape, a wildcard's word or a sign exchanged."""
    by = reader(which)
    has = Texts(which)
    text = by.access(filt, "p")
    others = {filt.replace("#", has.words["hash"]), filt.replace("+", has.words["plus"])}
    others |= {has.filter(filt), has.name(filt), sign, filt + "/", "/" + filt}
    for near in others - {filt}:
        try:
            check_filter(near)
        except Malformed:
            continue
        assert by.access(near, "p") != text


@quick
@given(filters, purposes, words)
def test_strict_client_libraries_take_it(
    filt: str, purpose: str, which: dict[str, str] | None
) -> None:
    text = reader(which).access(filt, purpose)
    check_filter(text)
    assert not set("#+\0") & set(text)
    assert Paho._filter_wildcard_len_check(text.encode()).value == 0


def test_paho_sends_it() -> None:
    """With no connection it says so behind its checks; a raw wildcard out of place is refused."""
    paho = Paho(CallbackAPIVersion.VERSION2)
    text = Grammar().access("a/+/#", "b")
    assert paho.subscribe(text)[0] == 4
    with pytest.raises(ValueError, match="Invalid subscription filter"):
        paho.subscribe("!AP/a/+/#{b}")


@more
@given(filters, purposes)
def test_the_published_form_of_what_it_can_express(filt: str, purpose: str) -> None:
    """SPEC.md 12.3 says which names it cannot; all others may stand there as they are."""
    has = Texts()
    escapes = [has.escaped(c) for c in has.special]
    lost = ["HASH", "PLUS", "%48ASH", "%50LUS"]
    can = not any(e in part for e in escapes for part in (filt, purpose))
    can = can and not any(level in lost for level in filt.split("/"))
    can = can and not any(has.words[s] in purpose for s in SEPARATORS)
    text = f"!AP/{has.published(filt)}{{{purpose}}}"
    if can:
        assert reader(None, True).read_access(text) == (filt, purpose)
        assert reader(None, True).read_access(f"!AP/{filt}{{{purpose}}}") == (filt, purpose)
    else:
        assert said(reader(None, True), text) != (filt, purpose)


any_word = st.one_of(
    st.sampled_from([*SPEC_WORDS.values(), "#", "+", "/", "a/b", "", "!", "!c1", "!s1", "A", "{{"]),
    st.text("!aZ{}%|é~", max_size=4),
)
any_words = st.one_of(
    st.dictionaries(st.sampled_from(NAMES), any_word, max_size=4),
    # One separator that other texts could have in them.
    st.dictionaries(st.sampled_from(SEPARATORS), st.sampled_from("27BCE;!P"), max_size=1),
)


@more
@given(any_words, accesses, commands)
def test_words_are_refused_or_mean_one_thing(
    some: dict[str, str], access: tuple[str, str], command: tuple[Any, ...]
) -> None:
    try:
        by = Reader(some)
    except Misuse:
        return
    assert by.read_access(by.access(*access)) == access
    assert by.read(written(command, by)) == command
    check_filter(by.access(*access))


@pytest.mark.parametrize(
    "wrong",
    [
        {"no such word": "x"},
        {"ap": "AP"},
        {"ap": "!c1"},
        {"reserve": "!s1"},
        {"pbac": "!"},
        {"ap": "!RESERVE"},
        {"set": "a/b"},
        {"hash": "#"},
        {"hash": "a+"},
        {"plus": "HASH"},
        {"open": ""},
        {"open": "}"},
        {"open": "<-", "close": "->"},
        {"comma": "#"},
        {"comma": "/"},
        {"comma": "7"},
        {"comma": "B"},
        {"escape": "%%"},
        {"escape": "\0"},
        {"bar": "P"},
        {"mode": "M{"},
        {"mode": "x" * 33},
        {"mode": "\ud800"},
        {"mode": 7},
    ],
    ids=repr,
)
def test_words_that_could_mean_two_things(wrong: dict[str, str]) -> None:
    with pytest.raises(Misuse):
        Grammar(wrong)


def test_a_separator_is_no_digit_of_an_escape() -> None:
    for digit in "0123456789ABCDEF":
        with pytest.raises(Misuse):
            Grammar({"comma": digit})


LONG = "f" * 1024


@pytest.mark.parametrize(
    "call",
    [
        lambda g: g.access("a", ""),
        lambda g: g.access("a", "b//c"),
        lambda g: g.access("a", "/b"),
        lambda g: g.access("a", "b/"),
        lambda g: g.access("a", "b" * 129),
        lambda g: g.access("a", "é" * 65),
        lambda g: g.access("a", "b\0"),
        lambda g: g.access("a", "\ud800"),
        lambda g: g.access("\ud800", "b"),
        lambda g: g.access("", "b"),
        lambda g: g.access("a/#/b", "b"),
        lambda g: g.access("f" * 1018, "b"),
        lambda g: g.access("{" * 400, "b"),
        lambda g: g.reserve("a", ("b", "b")),
        lambda g: g.reserve("a", (), ("",)),
        lambda g: g.reserve("a#", ("b",)),
        lambda g: g.reserve("a", [f"{n:05}" for n in range(1400)]),
        lambda g: g.release(""),
        lambda g: g.presubscribe("", "a", "b"),
        lambda g: g.presubscribe("c/d", "a", "b"),
        lambda g: g.presubscribe("c", "a#", "b"),
        lambda g: g.setting("", "x"),
        lambda g: g.setting("a/b", "x"),
        lambda g: g.setting("a", "x/y"),
        lambda g: g.query("mode", "x"),
        lambda g: g.query("eip"),
        lambda g: g.query("eip", "a/+"),
        lambda g: g.query("reservations"),
        lambda g: g.query("presubs", "a/b"),
        lambda g: g.query("all", "a"),
        lambda g: check_purpose("a\0"),
    ],
)
def test_what_has_no_text(call: Any) -> None:
    with pytest.raises(Malformed):
        call(Grammar())


def test_one_text_for_several_purposes_is_a_mistake() -> None:
    with pytest.raises(Misuse):
        Grammar().reserve("a", "billing")


def test_limits_are_reached() -> None:
    by = reader(None)
    access = by.access("f" * 1017, "b")
    assert len(access) == 1024
    assert by.read_access(access) == ("f" * 1017, "b")
    many = [f"{n:05}" for n in range(1192)]
    full = by.reserve(LONG, many, ("12345",))
    assert len(full) == 8192
    assert by.read(full) == ("reserve", LONG, tuple(many), ("12345",))
    with pytest.raises(Malformed):
        by.reserve(LONG, many, ("123456",))
    with pytest.raises(Malformed):
        by.read("!RESERVE/" + "{" * 8192)
    # A published text may be longer than the one that its value has.
    some = ",".join(many[:1022])
    longer = f"!RESERVE/{'/'.join(['PLUS'] * 409)}{{{some}|12345}}"
    assert len(longer) == 8192
    assert len(by.reserve("/".join("+" * 409), many[:1022])) < 8192
    assert reader(None, True).read(longer)[1] == "/".join("+" * 409)
    with pytest.raises(Malformed):
        reader(None, True).read(longer.replace("{", "/{"))
