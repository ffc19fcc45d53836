"""Text written to stall, to crash or to be executed: refused or decided within milliseconds, and nothing runs."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

import pytest

from reward_service.worker.types import BadGold, TooLarge
from reward_service.worker.verify.v2 import equal, extract, read_gold
from tests.benchmarks.cases import CASES, expanded, verdict
from tests.conftest import slowness

HANGS = (
    [case for case in map(json.loads, CASES.read_text("utf-8").splitlines()) if case["kind"] == "hang"]
    if CASES.exists()
    else []
)


def _timed(gold: str, completion: str) -> tuple[bool | str, float]:
    began = time.process_time()
    result = verdict(gold, completion)
    return result, time.process_time() - began


@pytest.mark.skipif(not HANGS and not os.environ.get("CI"), reason="the shared cases are absent")
def test_every_hang_case_ends_within_fifty_milliseconds_and_none_is_paid_that_must_not() -> None:
    assert len(HANGS) == 36
    for case in HANGS:
        # the best of five, and on a machine that is slow or busy more: the bound is of an idle one
        results = [_timed(*expanded(case)) for _ in range(5)]
        assert not (case.get("never_true") and results[0][0] is True), case["id"]
        assert min(seconds for _, seconds in results) < 0.05 * slowness(), case["id"]


TOWERS = [
    "2^{2^{2^{2^{2^2}}}}", "9^9^9^9", "(((9!)!)!)!", r"\binom{10^{30}}{10^{29}}", r"10^{10^{10}}!", r"e^{e^{e^{e^e}}}",
    r"\sin(10^{10^{10}})", r"\log(9^{9^{9^9}})", r"\sum_{k=1}^{10^{12}} k", r"\prod_{k=1}^{10^9} \frac{k}{k+1}",
    r"\sum_{i=1}^{3000}\sum_{j=1}^{3000} ij", r"(x+1)^{10^{15}}", r"\sqrt[1000000000]{2}", r"x^{x^{x^{x^{99999}}}}",
    r"\lfloor 10^{10^{9}} \pi \rfloor", r"1e999999999", r"\frac{1}{10^{10^{10}}}",
    "+".join(f"x^{{{k}}}" for k in range(900)),
    "+".join(rf"\sin({k}x)" for k in range(300)), "-" * 9000 + "1", "2^" * 4000 + "2", r"\sqrt" * 1500 + "2",
    "(" * 4000 + "1" + ")" * 4000,
    r"\frac{1}{" * 900 + "2" + "}" * 900, "3" + "!" * 5000, r"\pm 1" * 1600, "1," * 4900 + "1", "|" * 5000,
    "x" + "'" * 5000, "1:" * 4000 + "1",
    r"(1,2)\cup" * 1000 + "(3,4)", r"\begin{pmatrix}" + "1&" * 4000 + r"1\end{pmatrix}", r"\sin " * 2000 + "x",
    "e^{" * 30 + "x" + "}" * 30, "7" * 9999, "0." + "3" * 9000, "x_" * 4000 + "1",
]  # fmt: skip
SIMPLE = ["1", "0.5", "x", r"\sqrt{2}", r"\pi+1", "1,2", "(0,1)", r"\sin x", "y=x", "B", "Paris"]


@pytest.mark.parametrize("tower", TOWERS)
def test_hostile_expressions_end_quickly_against_every_kind_of_gold(tower: str) -> None:
    for gold in SIMPLE:
        result, seconds = _timed(gold, rf"\boxed{{{tower}}}")
        assert result is not True, gold
        assert seconds < 3, gold  # a third of a second where nothing else runs; what hangs never ends


@pytest.mark.parametrize("tower", TOWERS)
def test_a_hostile_gold_ends_quickly(tower: str) -> None:
    for answer in (*SIMPLE, tower):
        _, seconds = _timed(tower, rf"\boxed{{{answer}}}")
        assert seconds < 5, answer


MARK = "hallmark_was_run"
UNSAID = "73194.5"  # a gold that no folder's name holds
PLANTED = [
    "__import__('os').system('touch {path}')",
    "exec(open('{path}','w').write('x'))",
    "().__class__.__bases__[0].__subclasses__()",
    "(lambda: open('{path}', 'w'))()",
    "{{0.__class__.__init__.__globals__}}",
    "%(path)s %s %n",
    'f\'{{open("{path}","w")}}\'',
    'sympify(\'open("{path}","w")\')',
    "Integer(1).__class__.__mro__",
    r"\input{{{path}}}",
    r"\write18{{touch {path}}}",
    "$(touch {path})",
    "x.evalf(subs={{x: open('{path}','w')}})",
]


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_code_never_runs(planted: str, tmp_path: Path) -> None:
    target = tmp_path / MARK
    code = planted.format(path=target)
    modules = set(sys.modules)
    for gold, completion in (
        (code, code),
        (UNSAID, code),
        (UNSAID, rf"\boxed{{{code}}}"),
        (code, rf"\boxed{{{UNSAID}}}"),
        (UNSAID, f"The answer is {code}"),
    ):
        assert verdict(gold, completion) is not True or gold == code
    assert not target.exists()
    assert set(sys.modules) == modules


def test_the_engine_imports_no_parser_of_others() -> None:
    folder = Path(sys.modules["reward_service.worker.verify.v2"].__file__ or "").parent
    source = "\n".join(path.read_text("utf-8") for path in folder.rglob("*.py"))
    for word in (
        "import sympy",
        "from sympy",
        "latex2sympy",
        "math_verify",
        "eval(",
        "exec(",
        "__import__",
        "getattr(",
    ):
        assert word not in source.replace(".eval(", ""), word


def test_one_item_cannot_change_a_later_verdict() -> None:
    pairs = [
        (r"\sqrt{12}", r"2\sqrt{3}"),
        ("x^2-1", "(x-1)(x+1)"),
        ("0.5", "1/2"),
        (r"\sin 2x", r"\cos 2x"),
        ("1,2", "2,1"),
    ]
    before = [equal(gold=read_gold(gold), answer=answer) for gold, answer in pairs]
    limits = sys.getrecursionlimit(), random.getstate()
    for tower in TOWERS:
        verdict(tower, tower)
        verdict("1", tower)
    assert (sys.getrecursionlimit(), random.getstate()) == limits
    assert [equal(gold=read_gold(gold), answer=answer) for gold, answer in pairs] == before


FRAGMENTS = [
    "\\frac", "{", "}", "(", ")", "[", "]", "^", "_", "\\sqrt", "1", "23", "0.5", "x", "y", "\\pi", "e", "i", "!",
    "%", "\\pm", "+",
    "-", "*", "/", "=", "<", "\\le", ",", ";", " and ", " or ", "\\text{", "\\boxed{", "$", "\\begin{pmatrix}",
    "\\end{pmatrix}", "&",
    "\\\\", "|", "\\cup", "\\infty", "\\sin", "\\log", "\\sum_{k=1}^{", "\\binom", "9^9", "(10^9)!", "sqrt", "\\{",
    "\\}", ":", "\\in",
    "\\circ", "km", "\\cdot", "1,000", ".", "...", "\\ldots", "\\overline", "\\lim_{x \\to 0}", "\\int", "é", "二",
    "½", "\ud800", "\x00",
    "answer is ", "####", "<answer>", "</think>",
]  # fmt: skip


def test_twenty_thousand_random_texts_raise_nothing_unexpected() -> None:
    chance = random.Random(20261130)
    for _ in range(20_000):
        gold, completion = ("".join(chance.choices(FRAGMENTS, k=chance.randint(1, 12))) for _ in range(2))
        try:
            read = read_gold(gold)
        except BadGold:
            continue
        found = extract(completion)
        if found is None:
            continue
        try:
            assert isinstance(equal(gold=read, answer=found.answer), bool)
        except TooLarge:
            pass
