"""Texts about purposes as a mediator reads them, against a naive reader, which looks at each
character: the canonical form, and the published one in any words.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from families.purposes.naive_purposes import Bad, Naive
from families.purposes.texts_made import OTHER, InOtherWords, pieced, spoiled, words
from purposes_made import accesses, commands, filters, purposes, written
from sealmq.families.purposes.texts import WORDS, BadWord, Reader
from sealmq_spec import purposes as canonical
from sealmq_spec.errors import Malformed
from vectorgen.purposes import SEPARATORS, Texts
from vectorgen.purposes import WORDS as SPEC_WORDS

quick = settings(max_examples=80, deadline=None, derandomize=True, database=None)
more = settings(max_examples=150, deadline=None, derandomize=True, database=None)

CASES = json.loads((Path(__file__).with_name("texts.json")).read_text("utf-8"))
STRICT = Reader()


@cache
def _published(at: int) -> Reader:
    return Reader(True, OTHER[at])


def published(which: dict[str, str]) -> Reader:
    """One of each, made once."""
    return _published(OTHER.index(which))


def said(by: Any, text: str) -> Any:
    """What a reader makes of a text: of a subscription with its keyword, else of a command."""
    try:
        access = by.read_access(text) if isinstance(by, Reader) else by.access(text)
        return access or by.read(text)
    except (Malformed, Bad):
        return "refused"


def either(text: str, which: dict[str, str]) -> Any:
    """What the naive reader makes of it in the canonical form, else in the published one."""
    found = said(Naive(), text)
    return said(Naive(True, which), text) if found == "refused" else found


def test_the_words_are_the_specs() -> None:
    assert WORDS == SPEC_WORDS


@pytest.mark.parametrize(
    ("form", "case"),
    [(form, case) for form, cases in CASES["cases"].items() for case in cases],
    ids=lambda value: value["name"] if isinstance(value, dict) else value,
)
def test_cases_are_read_as_they_are_written_down(form: str, case: dict[str, Any]) -> None:
    by = {
        "canonical": STRICT,
        "published": Reader(True),
        "other words": Reader(True, CASES["words"]),
    }[form]
    got = said(by, case["text"])
    wanted = "refused" if case["value"] is None else case["value"]
    assert json.loads(json.dumps(got)) == wanted


@more
@given(st.one_of(commands, accesses), words)
def test_what_our_clients_write_every_site_reads(
    value: tuple[Any, ...], which: dict[str, str]
) -> None:
    text = written(value, canonical)
    for by in (STRICT, published(which)):
        if len(value) == 2:
            assert by.read_access(text) == value
        else:
            assert by.read_access(text) is None
            assert by.read(text) == value


@more
@given(st.one_of(commands, accesses), words)
def test_what_is_escaped_in_other_words_is_read(
    value: tuple[Any, ...], which: dict[str, str]
) -> None:
    assert said(published(which), written(value, InOtherWords(which))) == value


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
    found = said(STRICT, text)
    assert found == said(Naive(), text)
    if found != "refused":
        assert written(found, canonical) == text


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
    found = said(published({}), text)
    assert found == said(Naive(True), text)
    # What is canonical means the same in both forms.
    assert said(STRICT, text) in ("refused", found)


@quick
@given(spoiled, words)
def test_other_words_against_the_naive_reader(text: str, which: dict[str, str]) -> None:
    by = published(which)
    for one in (text, InOtherWords(which).translated(text)):
        assert said(by, one) == either(one, which)


@more
@given(filters, purposes)
def test_the_published_form_of_what_it_can_express(filt: str, purpose: str) -> None:
    """The specification says which names it cannot; all others may stand there as they are."""
    has = InOtherWords({})
    escapes = [has.escaped(c) for c in has.special]
    lost = ["HASH", "PLUS", "%48ASH", "%50LUS"]
    can = not any(e in part for e in escapes for part in (filt, purpose))
    can = can and not any(level in lost for level in filt.split("/"))
    can = can and not any(has.words[s] in purpose for s in SEPARATORS)
    text = f"!AP/{has.published(filt)}{{{purpose}}}"
    if can:
        assert published({}).read_access(text) == (filt, purpose)
        assert published({}).read_access(f"!AP/{filt}{{{purpose}}}") == (filt, purpose)
    else:
        assert said(published({}), text) != (filt, purpose)


any_word = st.one_of(
    st.sampled_from([*SPEC_WORDS.values(), "#", "+", "/", "a/b", "", "!", "!c1", "!s1", "A", "{{"]),
    st.text("!aZ{}%|é~", max_size=4),
)
first_words = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(["!R", "!A", "!AP", "!X"]) for name in list(WORDS)[:3]}
)
any_words = st.one_of(
    st.dictionaries(st.sampled_from(list(WORDS)), any_word, max_size=4),
    # One separator that other texts could have in them.
    st.dictionaries(st.sampled_from(SEPARATORS), st.sampled_from("27BCE;!P"), max_size=1),
    st.tuples(
        first_words, st.dictionaries(st.sampled_from(list(WORDS)[3:]), any_word, max_size=2)
    ).map(lambda two: {**two[0], **two[1]}),
)


@more
@given(any_words, accesses, commands, spoiled)
@example({"hash": "ALL"}, ("#", "a"), ("release", "#", (), ()), "!AP/ALL{a}")
@example({"comma": ";"}, ("a", "a"), ("release", "a", (), ()), "!RESERVE/a{b,c|}")
def test_words_are_refused_or_no_text_means_two_things(
    some: dict[str, str], access: tuple[str, str], command: tuple[Any, ...], text: str
) -> None:
    try:
        by = Reader(True, some)
    except BadWord:
        return
    foreign = InOtherWords(some)
    texts = [text, foreign.translated(text)]
    for value in (access, command):
        for writer in (Texts(), foreign):
            texts.append(written(value, writer))
            assert said(by, texts[-1]) == value
    for one in texts:
        in_one, in_other = said(Naive(), one), said(Naive(True, some), one)
        assert "refused" in (in_one, in_other) or in_one == in_other


@pytest.mark.parametrize(
    "wrong",
    [
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
        {"reserve": "!AP", "ap": "!RESERVE"},
        {"ap": "!PBAC", "pbac": "!X"},
        {"hash": "ALL"},
        {"comma": ";"},
        {"escape": "~", "ap": "!FOR", "reserve": "!R"},
        {"open": "[", "close": "]}"},
    ],
    ids=repr,
)
def test_words_with_which_a_text_could_mean_two_things_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(BadWord):
        Reader(True, wrong)


def test_a_separator_is_no_digit_of_an_escape() -> None:
    for digit in "0123456789ABCDEF":
        with pytest.raises(BadWord):
            Reader(True, {"comma": digit, "close": ">"})


def test_limits_are_reached() -> None:
    access = canonical.access("f" * 1017, "b")
    assert STRICT.read_access(access) == ("f" * 1017, "b")
    many = [f"{n:05}" for n in range(1192)]
    long = "f" * 1024
    full = canonical.reserve(long, many, ("12345",))
    assert STRICT.read(full) == ("reserve", long, tuple(many), ("12345",))
    with pytest.raises(Malformed):
        STRICT.read(full.replace("12345}", "123456}"))
    with pytest.raises(Malformed):
        STRICT.read("!RESERVE/" + "{" * 8192)
    # A published text may be longer than the one that its value has.
    some = ",".join(many[:1022])
    longer = f"!RESERVE/{'/'.join(['PLUS'] * 409)}{{{some}|12345}}"
    assert len(longer) == 8192
    assert len(canonical.reserve("/".join("+" * 409), many[:1022])) < 8192
    assert published({}).read(longer)[1] == "/".join("+" * 409)
    with pytest.raises(Malformed):
        published({}).read(longer.replace("{", "/{"))
    # And shorter than one that would be too long.
    with pytest.raises(Malformed):
        published({}).read_access("!AP/" + "%" * 339 + "ff{p}")


@quick
@given(st.one_of(commands, accesses), st.one_of(commands, accesses), words)
def test_two_values_have_two_texts_in_other_words(
    one: tuple[Any, ...], other: tuple[Any, ...], which: dict[str, str]
) -> None:
    assume(one != other)
    by = InOtherWords(which)
    assert written(one, by) != written(other, by)
