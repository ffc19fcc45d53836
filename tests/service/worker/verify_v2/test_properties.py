"""Properties: each cheap exact decision agrees with the full path, and identities hold whatever the numbers."""

from __future__ import annotations

import random
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from reward_service.worker.types import TooLarge
from reward_service.worker.verify.v2 import equal, extract, read_gold
from reward_service.worker.verify.v2.algebra.expressions import Num
from reward_service.worker.verify.v2.algebra.numbers import plain_number
from reward_service.worker.verify.v2.decide.meanings import matches
from reward_service.worker.verify.v2.find.normalisation import clean
from reward_service.worker.verify.v2.mean.meaning import meaning
from reward_service.worker.verify.v2.read.parser import parse
from reward_service.worker.verify.v2.read.tokens import Unread, tokenize

PAIRS = 5_000


def full_path(gold: str, answer: str) -> bool:
    """The verdict by grammar and meaning alone, without a cheap decision."""
    return matches(*(meaning(parse(tokenize(clean(text)))) for text in (gold, answer)))


def _integer(chance: random.Random) -> str:
    value = chance.choice([chance.randint(0, 30), chance.randint(0, 10**6), chance.randint(0, 10**15 - 1)])
    text = chance.choice([str(value), f"{value:,}", f"0{value}" if value < 10**14 else str(value)])
    return chance.choice(["", "", "-", "+"]) + text


def _decimal(chance: random.Random) -> str:
    places = chance.randint(1, 9)
    return chance.choice(["", "-"]) + f"{chance.randint(0, 40)}.{chance.randint(0, 10**places - 1):0{places}d}"


def _fraction(chance: random.Random) -> str:
    above, below = chance.randint(-20, 40), chance.randint(1, 40)
    slash = f"{above}/{below}"
    return chance.choice([slash, rf"\frac{{{above}}}{{{below}}}", rf"\dfrac{{{above}}}{{{below}}}"])


def _agree(first, second) -> None:  # type: ignore[no-untyped-def]
    chance = random.Random(7)
    paid = 0
    for _ in range(PAIRS):
        gold, answer = first(chance), second(chance)
        if chance.random() < 0.3:
            answer = gold
        assert plain_number(gold) is not None
        assert plain_number(answer) is not None
        verdict = equal(gold=read_gold(gold), answer=answer)
        assert verdict is full_path(gold, answer), (gold, answer)
        paid += verdict
    assert paid > PAIRS // 5


def test_integers_agree_with_the_full_path() -> None:
    _agree(_integer, _integer)


def test_decimals_agree_with_the_full_path() -> None:
    _agree(_decimal, _decimal)


def test_fractions_agree_with_the_full_path() -> None:
    _agree(_fraction, _fraction)


def test_decimals_and_fractions_agree_with_the_full_path() -> None:
    _agree(_decimal, _fraction)
    _agree(_fraction, _decimal)


def test_identical_texts_agree_with_the_full_path() -> None:
    chance = random.Random(11)
    pieces = ["x", "2", r"\pi", r"\sqrt{3}", "y", "(x+1)", r"\frac{1}{2}", "e", r"\sin x"]
    for _ in range(PAIRS):
        text = chance.choice(["+", r"\cdot ", "-"]).join(chance.choices(pieces, k=chance.randint(1, 4)))
        assert equal(gold=read_gold(text), answer=text)
        assert full_path(text, text)


def test_option_letters_agree_with_their_plain_meaning() -> None:
    chance = random.Random(13)
    for _ in range(PAIRS):
        gold, answer = (chance.choice("ABCDEFGHJ") for _ in range(2))
        dress = chance.choice(["{}", "({})", r"\text{{{}}}", "{}.", r"\textbf{{({})}}", "option {}", "{}) because"])
        assert equal(gold=read_gold(gold), answer=dress.format(answer)) is (gold == answer)


SMALL = st.fractions(min_value=-50, max_value=50, max_denominator=60)


def latex(value: Fraction) -> str:
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


@given(SMALL, SMALL)
@settings(max_examples=300, deadline=None)
def test_a_sum_is_equal_to_its_value_and_to_nothing_else(one: Fraction, two: Fraction) -> None:
    gold = read_gold(latex(one + two))
    assert equal(gold=gold, answer=f"{latex(one)} + ({latex(two)})")
    assert not equal(gold=gold, answer=f"{latex(one)} + ({latex(two)}) + \\frac{{1}}{{10^{{30}}}}")


@given(st.integers(2, 10**6), st.integers(2, 10**6))
@settings(max_examples=200, deadline=None)
def test_roots_multiply(one: int, two: int) -> None:
    assert equal(gold=read_gold(rf"\sqrt{{{one * two}}}"), answer=rf"\sqrt{{{one}}}\sqrt{{{two}}}")
    assert not equal(gold=read_gold(rf"\sqrt{{{one * two}}}"), answer=rf"\sqrt{{{one}}}\sqrt{{{two + 1}}}")


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_a_polynomial_is_equal_to_its_factors(roots: list[int]) -> None:
    coefficients = [1]
    for root in roots:
        coefficients = [a - root * b for a, b in zip([*coefficients, 0], [0, *coefficients], strict=True)]
    degree = len(roots)
    expanded = "+".join(f"({c})x^{{{degree - k}}}" for k, c in enumerate(coefficients))
    factored = "".join(f"(x-({root}))" for root in roots)
    assert equal(gold=read_gold(expanded), answer=factored)
    assert not equal(gold=read_gold(expanded), answer=factored + "+x^0")


@given(st.lists(st.integers(-99, 99), min_size=2, max_size=6, unique=True), st.randoms())
@settings(max_examples=200, deadline=None)
def test_sets_ignore_order_and_miss_no_member(members: list[int], chance: random.Random) -> None:
    shuffled = list(members)
    chance.shuffle(shuffled)
    gold = read_gold(r"\{" + ", ".join(map(str, members)) + r"\}")
    assert equal(gold=gold, answer=", ".join(map(str, shuffled)))
    assert not equal(gold=gold, answer=", ".join(map(str, shuffled[1:])))
    assert not equal(gold=gold, answer=", ".join(map(str, [*shuffled, 100])))


@given(st.text(max_size=300))
@settings(max_examples=400, deadline=None)
def test_any_text_is_read_or_left_alone(text: str) -> None:
    found = extract(text)
    if found is not None:
        assert found.span is not None
        start, end = found.span
        assert text[start:end].strip() == found.answer
        try:
            assert equal(gold=read_gold("17"), answer=found.answer) in (True, False)
        except TooLarge:
            pass


def test_a_number_refused_by_the_grammar_is_no_plain_number() -> None:
    for text in ("1.234,5", "1.2.3", "1 2", "--5", "1,23"):
        assert plain_number(text) is None
    for text in ("1.234,5", "1.2.3", "1 2", "--5"):
        try:
            assert not isinstance(parse(tokenize(clean(text))), Num)
        except Unread:
            pass
