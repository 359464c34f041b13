"""Hypothesis strategies of names, filters, purposes and values that mean to confuse."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

ODD = (
    "", "PLUS", "HASH", "SURPLUS", "REHASH", "a{b}", "x|y", "%41", "%23", "%2B", "%25", "%2523",
    "%48ASH", "%50LUS", "{|}", "{}", "a,b", "$share", "!AP", "!RESERVE", "!PBAC", "!c1", "@sm1",
    "SUR%50LUS", "größe", "温度", "🔒",
    "HASHED", "hash", "%", "%%", "%7b", "%C3%9F", "«·»", "<<a>>", "~41", " ", "\x7f", "25", "älles",
    "\ufeff", "\u2028", "\u0301", "zz", "(z)", "$23", "==",
)  # fmt: skip
CHARS = "aAH%{}|,!$@237BF ~<>=&-«»温é🔒\u0301"

level = st.one_of(st.sampled_from(ODD), st.text(CHARS, max_size=4), st.text(max_size=3)).map(
    lambda text: text.replace("/", "").replace("#", "").replace("+", "").replace("\0", "")
)
sharp = st.one_of(level, st.sampled_from(["#", "+", "a+b", "a#", "##", "+/#"]))
_levels = st.lists(st.one_of(level, level, st.just("+")), min_size=1, max_size=4)
filters = st.tuples(_levels, st.booleans()).map(
    lambda made: "/".join([*made[0], "#"] if made[1] else made[0])
)
filters = filters.filter(bool)
topics = st.lists(level, min_size=1, max_size=4).map("/".join).filter(bool)
names = sharp.map(lambda text: text.replace("/", "")).filter(bool)
purposes = st.lists(names, min_size=1, max_size=3).map("/".join)
several = st.lists(purposes, max_size=3, unique=True).map(tuple)
nothing = st.just(())

# (kind, a, b, c), and (filter, purpose).
commands: st.SearchStrategy[tuple[Any, ...]] = st.one_of(
    st.tuples(st.just("reserve"), filters, several, several),
    st.tuples(st.just("release"), filters, nothing, nothing),
    st.tuples(st.just("presub"), names, filters, st.one_of(purposes, st.just(""))),
    st.tuples(st.just("set"), names, st.one_of(names, st.just("")), st.just("")),
    st.tuples(st.just("get"), st.just("mode"), st.just(""), st.just("")),
    st.tuples(st.just("get"), st.just("reservations"), filters, st.just("")),
    st.tuples(st.just("get"), st.just("eip"), topics, st.just("")),
    st.tuples(st.just("get"), st.just("presubs"), names, st.just("")),
)
accesses = st.tuples(filters, purposes)


def written(value: tuple[Any, ...], by: Any) -> str:
    """A value's text."""
    if len(value) == 2:
        return str(by.access(*value))
    kind, a, b, c = value
    if kind == "presub":
        return str(by.presubscribe(a, b, c))
    if kind == "set":
        return str(by.setting(a, b))
    if kind == "get":
        return str(by.query(a, b))
    return str(by.reserve(a, b, c) if kind == "reserve" else by.release(a))
