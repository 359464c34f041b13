"""Both encodings against the definition on plain attributes; the paper's example and figures."""

from __future__ import annotations

import random
from functools import partial

import pytest

from families.blinded import naive_blinded as naive
from sealmq.families.blinded import bloom, coded, leakage, paper, scoped, words
from sealmq.families.blinded.bloom import BITS, HASHES, MOST_ONES, Rules, Sets

KEY = b"k" * 32
C2 = words.conjunction("type = company & service = datamining")


def seeded(draw: random.Random) -> leakage.Draw:
    return draw.randbytes


# --- the definition -------------------------------------------------------------------------------


def ask_both(draw: random.Random, turns: int) -> tuple[int, int]:
    """So many random questions, to each encoding and to the definition; how many matched."""
    yes = asked = 0
    while asked < turns:
        policy = naive.draw_policy(draw)
        dnf = words.policy([naive.text_of(atoms) for atoms in policy])
        key = draw.randbytes(32)
        rules = Rules(scoped.rules(key, dnf))
        encoder = paper.Encoder(key, length=4)
        conjuncts = encoder.policy(dnf, draw.randbytes(8))
        atoms = words.asked(dnf)
        for _ in range(5):
            haves = [naive.draw_have(draw) for _ in range(draw.randint(1, 2))]
            had = words.having([naive.text_of_have(have) for have in haves])
            assert all(have in had for have in haves)
            wanted = naive.matches(policy, haves)
            assert rules.within(Sets(scoped.sets(key, had, dnf))) == wanted, (policy, haves)
            if asked % 5 == 0:
                met = [sorted({*paper.atoms_of(h), *words.holding(atoms, h)}) for h in had]
                helds = [encoder.held(one, draw.randbytes(8)) for one in met]
                assert paper.matches(conjuncts, helds) == wanted, (policy, haves)
            yes, asked = yes + wanted, asked + 1
    return yes, asked


def test_filters_answer_as_the_plain_attributes_do() -> None:
    yes, asked = ask_both(random.Random(20), 5_000)
    assert 0.1 < yes / asked < 0.9


@pytest.mark.full
def test_filters_answer_as_the_plain_attributes_do_many_times() -> None:
    yes, asked = ask_both(random.Random(21), 100_000)
    assert 0.1 < yes / asked < 0.9


# --- the paper's example --------------------------------------------------------------------------


def test_c2_padded_to_four_places_gives_1100() -> None:
    encoder = paper.Encoder(KEY, decoys=0.0, length=4)
    rule = encoder.conjunct(C2, b"AP_B")
    held = encoder.held(C2, b"C2")
    assert rule.within(held.t)
    assert [rule.within(each) for each in held.each] == [True, True, False, False]
    assert paper.indices(rule, held) == "1100"
    # Definition 5's misprint: two adjacent auxiliary sets leave {1, 2} of four, not {1, 2, 4}.
    other = encoder.held(words.conjunction("type = company & service = billing"), b"C3")
    assert paper.indices(rule, other) is None


def test_the_paper_s_test_holds_of_one_attribute_and_of_all() -> None:
    encoder = paper.Encoder(KEY, decoys=0.0, length=3)
    three = words.conjunction("a = 1 & b = 1 & c = 1")
    held = encoder.held(three, b"x")
    assert paper.indices(encoder.conjunct(three, b"1"), held) == "111"
    for at in range(3):
        rule = encoder.conjunct(three[at : at + 1], bytes((at,)))
        assert paper.indices(rule, held) == "".join("1" if n == at else "0" for n in range(3))


def test_a_second_alias_goes_wherever_its_attribute_goes() -> None:
    encoder = paper.Encoder(KEY, decoys=1.0, length=8)
    assert all(len(encoder.aliases(atom)) == 2 for atom in C2)
    assert paper.matches([encoder.conjunct(C2, b"1")], [encoder.held(C2, b"2")])
    assert paper.indices(encoder.conjunct(C2, b"1"), encoder.held(C2, b"2")) == "11110000"


# --- what filters look like -----------------------------------------------------------------------


def test_rules_and_sets_tell_nothing_by_how_much_is_in_them() -> None:
    dnf = words.policy(["a = 1", "a = 1 & b = 1 & c = 1 & d = 1 & e = 1 & f = 1 & g = 1 & h = 1"])
    short, long = (scoped.rules(KEY, (atoms,))[0].bit_count() for atoms in dnf)
    same = HASHES * scoped.SHORTEST
    assert same * 0.85 < short <= same
    assert same * 0.85 < long <= same
    had = words.having(["a = 1", "a = 1 & b = 1 & c = 1 & z = 1", "z = 2"])
    assert {one.bit_count() for one in scoped.sets(KEY, had, dnf)} == {MOST_ONES}


def test_what_does_not_fit_a_filter_is_refused() -> None:
    names = [f"n{n} = 1" for n in range(scoped.MOST_MET + 1)]
    dnf = words.policy([" & ".join(names[:20]), " & ".join(names[20:])])
    with pytest.raises(scoped.TooFull):
        scoped.sets(KEY, [{f"n{n}": "1" for n in range(scoped.MOST_MET + 1)}], dnf)
    with pytest.raises(ValueError, match="without conjunctions"):
        scoped.rules(KEY, ())
    with pytest.raises(ValueError, match="empty"):
        scoped.rules(KEY, ((),))
    with pytest.raises(ValueError, match="empty"):
        paper.Encoder(KEY).conjunct((), b"")


def test_rows_come_back_and_no_others_are_taken() -> None:
    dnf = words.policy("a = 1")
    rules, sets = scoped.rules(KEY, dnf), scoped.sets(KEY, [{"a": "1"}], dnf)
    pair = coded.Pair(True, rules, sets, [], [])
    raw = coded.write_pair(pair)
    assert coded.read_pair(raw) == pair
    both = coded.Pair(False, rules, sets, rules, sets)
    assert coded.read_pair(coded.write_pair(both)) == both
    ones = (1 << BITS) - 1
    for bad in (
        pair._replace(has=[ones]),  # a filter of ones has everything in it
        pair._replace(has=[0]),
        pair._replace(let=[0]),  # an empty conjunction lies in everything
        pair._replace(let=[]),
        pair._replace(open=False),
        both._replace(open=True),
        both._replace(is_=[ones]),
        both._replace(wants=[0]),
    ):
        with pytest.raises(coded.BadRow):
            coded.read_pair(coded.write_pair(bad))
    for cut in (raw[:5], raw[:-1], raw + b"\0", b"\2" + raw[1:], raw[:1] + b"\7" + raw[2:]):
        with pytest.raises(coded.BadRow):
            coded.read_pair(cut)


# --- how often it is wrong ------------------------------------------------------------------------


def test_a_filter_is_wrong_less_than_once_in_ten_thousand_million() -> None:
    assert bloom.foreign(MOST_ONES) < 1e-10
    # The paper's 1,500 bits: its random strings counted, one in BF_t and two in the mask.
    assert bloom.best_hashes(30, 1500) == 35
    assert 3.4e-10 < bloom.as_printed(33, 1500, 35) < 3.6e-10
    assert bloom.expected(33, 1500, 35) > bloom.as_printed(33, 1500, 35)
    assert bloom.expected(30, 1500, 35) < 1e-10 < bloom.expected(32, 1500, 35)


def test_false_positives_come_as_often_as_computed() -> None:
    """With few hashes they can be counted: 4 hashes of 256 bits, in sets of 40 elements."""
    bits, hashes, each, filters = 256, 4, 200, 30
    wrong = 0
    ones = []
    for n in range(filters):
        key = bloom.prf(KEY, bytes((n,)))
        of = partial(bloom.of_element, key, bits=bits, hashes=hashes)
        have = 0
        for at in range(40):
            have |= of(b"in" + bytes((at,)))
        ones.append(have.bit_count())
        wrong += sum(
            (one := of(b"out" + at.to_bytes(2, "big"))) & have == one for at in range(each)
        )
    trials = each * filters
    wanted = trials * sum(bloom.foreign(count, bits, hashes) for count in ones) / filters
    assert abs(wrong - wanted) < 5 * wanted**0.5
    assert abs(wanted / trials / bloom.expected(40, bits, hashes) - 1) < 0.15


def test_a_short_piece_never_decides_for_a_match() -> None:
    draw = random.Random(3)
    for _ in range(300):
        have = draw.getrandbits(BITS) | draw.getrandbits(BITS)
        rules = [have & draw.getrandbits(BITS) & draw.getrandbits(BITS) for _ in range(2)]
        # One bit that is not there, anywhere.
        lack = draw.choice([n for n in range(BITS) if not have >> n & 1])
        assert not Rules([rules[0] | 1 << lack]).within(Sets([have]))
        assert Rules([rules[0] | 1 << lack, rules[1]]).within(Sets([have]))


# --- what it gives away ---------------------------------------------------------------------------


def test_the_paper_s_masks_and_auxiliary_filters_give_attributes_away() -> None:
    encoder = paper.Encoder(KEY, decoys=0.0)
    kept, there = leakage.mask_recovers(encoder.conjunct(C2, b"AP_B"), encoder.of_atoms(C2))
    assert kept / there > 0.9
    found = leakage.measure("paper", 40, seeded(random.Random(1)))
    assert found.mask > 0.9
    assert found.positions > 0.8
    assert found.link > 0.99
    assert found.whole > 0.9


def test_by_default_nothing_is_linked_or_looked_up() -> None:
    found = leakage.measure("scoped", 120, seeded(random.Random(2)))
    assert found.mask == found.positions == 0
    for right in (found.link, found.whole):
        assert abs(right - 0.5) < found.band


@pytest.mark.parametrize("encoding", ["paper", "scoped"])
def test_who_knows_all_words_and_no_key_looks_up_none(encoding: str) -> None:
    found = leakage.measure(encoding, 120, seeded(random.Random(3)))
    assert abs(found.dictionary - 0.5) < found.band


def test_an_element_is_where_its_positions_are_and_what_is_filled_is_filled_evenly() -> None:
    for n in range(200):
        element = n.to_bytes(2, "big")
        wanted = sum(1 << at for at in bloom.positions(KEY, element))
        assert bloom.of_element(KEY, element) == wanted
        assert wanted.bit_count() == HASHES
    few = bloom.of_set(KEY, [b"x"])
    counts = [0] * BITS
    for n in range(400):
        made = bloom.filled(KEY, n.to_bytes(2, "big"), few)
        assert made & few == few
        assert made.bit_count() == MOST_ONES
        for at in range(BITS):
            counts[at] += made >> at & 1
    # Of those that are free each as often, within what chance gives: chi-square, by its mean.
    free = [count for at, count in enumerate(counts) if not few >> at & 1]
    share = (MOST_ONES - HASHES) / len(free)
    spread = sum((count - 400 * share) ** 2 for count in free) / (400 * share * (1 - share))
    assert abs(spread / len(free) - 1) < 0.15
