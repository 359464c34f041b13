"""Encodings, topics and windows against naive models of them."""

from __future__ import annotations

import re
import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sealmq_spec import tlv, topics
from sealmq_spec.b64 import b64u, unb64u
from sealmq_spec.control import get_notice, notice
from sealmq_spec.errors import Malformed, SealError, TooLarge, Unsupported
from sealmq_spec.window import NEW, OLD, SEEN, Window, look, mark

quick = settings(max_examples=200, deadline=None, derandomize=True, database=None)


@quick
@given(st.binary(max_size=80))
def test_b64u_round_trip(raw: bytes) -> None:
    assert unb64u(b64u(raw)) == raw


@quick
@given(st.binary(max_size=8))
@example(b"_x")
@example(b"QQ==")
@example(b"Q")
def test_b64u_is_injective(text: bytes) -> None:
    """Whatever decodes is the one text of its value."""
    try:
        raw = unb64u(text)
    except Malformed:
        return
    assert b64u(raw) == text


items = st.dictionaries(st.integers(0, 127), st.binary(max_size=255), max_size=40).flatmap(
    lambda d: st.tuples(
        *(st.tuples(st.sampled_from([t, t | 0x80]), st.just(v)) for t, v in d.items())
    )
)


@quick
@given(items, st.binary(max_size=5))
def test_tlv_round_trip(some: tuple[tuple[int, bytes], ...], behind: bytes) -> None:
    block = tlv.pack(some) + behind
    start, end = tlv.span(block, 0, len(block))
    assert end == len(block) - len(behind)
    assert tlv.unpack(block, start, end, range(128)) == dict(some)
    if any(t & 0x80 for t, _ in some):
        with pytest.raises(Unsupported):
            tlv.unpack(block, start, end)


@quick
@given(st.binary(max_size=300))
def test_tlv_takes_one_encoding_of_a_block(block: bytes) -> None:
    try:
        start, end = tlv.span(block, 0, len(block))
        found = tlv.unpack(block, start, end, range(128))
    except SealError:
        return
    assert tlv.pack(found.items()) == block[:end]


def test_tlv_limits() -> None:
    full = [(t, bytes(255)) for t in range(63)]
    assert len(tlv.pack([*full, (63, bytes(16383 - 63 * 257 - 2))])) == 16385
    with pytest.raises(TooLarge):
        tlv.pack([*full, (63, bytes(16383 - 63 * 257 - 1))])


level = st.text(st.sampled_from("ab$!@"), max_size=3)
name = st.lists(level, min_size=1, max_size=4).map("/".join).filter(bool)
wild = st.lists(st.one_of(level, st.just("+")), min_size=1, max_size=4)
filters = st.tuples(wild, st.booleans()).map(lambda p: "/".join([*p[0], "#"] if p[1] else p[0]))


def naive(filt: str, topic: str) -> bool:
    """MQTT 4.7 as a regular expression."""
    if topic[0] in "$!@" and filt[0] in "+#":
        return False
    pattern = ""
    for i, part in enumerate(filt.split("/")):
        slash = "/" if i else ""
        if part == "#":
            pattern += f"({slash}.*)?" if i else ".*"
        elif part == "+":
            pattern += slash + "[^/]*"
        else:
            pattern += slash + re.escape(part)
    return re.fullmatch(pattern, topic) is not None


@settings(max_examples=1000, deadline=None, derandomize=True, database=None)
@given(filters.filter(bool), name)
@example("a/#", "a")
@example("#", "$SYS")
@example("+", "/")
def test_matches_like_a_naive_matcher(filt: str, topic: str) -> None:
    topics.check_filter(filt)
    assert topics.matches(filt, topic) == naive(filt, topic)


@quick
@given(st.binary(min_size=3, max_size=3).filter(any), st.binary(min_size=16, max_size=16), filters)
def test_token_round_trip(ctr: bytes, tag: bytes, filt: str) -> None:
    text = topics.put_token(ctr, tag, filt)
    assert topics.split_token(text) == (ctr, tag, filt)
    assert len(text) == 31 + len(filt)


@quick
@given(st.lists(st.one_of(st.integers(1, 200), st.integers(1, 2**24 - 1)), max_size=80))
@example([100, 37, 36, 37])
@example([1, 64, 1, 65, 1, 2])
@example([*range(1, 100)])
@example([1, 32, 63, 95, 126, 40, 64, 70, 127])
def test_window_against_a_set(ctrs: list[int]) -> None:
    window = Window()
    held = bytearray(24)  # the same as a reader has it
    accepted: set[int] = set()
    for ctr in ctrs:
        top = max(accepted, default=0)
        seen = window.look(ctr)
        assert look(held, ctr) == seen
        if ctr in accepted and top - ctr < 64:
            assert seen == SEEN
        elif top - ctr >= 64:
            assert seen == OLD
        else:
            assert seen == NEW
            window.mark(ctr)
            mark(held, ctr)
            accepted.add(ctr)
        assert window.top == max(accepted, default=0)
        bits = sum(1 << window.top - c for c in accepted if window.top - c < 64)
        assert window.mask == bits
        assert held == struct.pack("<IQ12x", window.top, bits)


@quick
@given(st.text(max_size=120))
@example("x" * 199 + "é")
@example("x" * 198 + "温")
@example("x" * 199 + "\U0001f512")
def test_a_notice_is_cut_between_letters(reason: str) -> None:
    what, ctr, code, rule, said = get_notice(notice(1, 7, 5, "labels.rp", reason * 4))
    assert (what, ctr, code, rule) == (1, 7, 5, "labels.rp")
    assert (reason * 4).startswith(said)
    assert len(said.encode()) > 196 or said == reason * 4
    assert len(said.encode()) <= 200
