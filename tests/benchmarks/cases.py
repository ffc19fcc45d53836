"""Print how math.equal@2 fares on the verification cases and the GSM8K solutions, beside math-verify 0.9.0 as recorded.

Run: python -m tests.benchmarks.cases
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from reward_service.worker.types import BadGold, TooLarge
from reward_service.worker.verify.v2 import equal, extract, read_gold

SHARED = Path(__file__).resolve().parents[3] / "shared"
CASES = SHARED / "cases" / "verification.jsonl"
GSM8K = SHARED / "data" / "gsm8k"
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


def expanded(case: dict[str, Any]) -> tuple[str, str]:
    """Gold and completion with their repeated parts written out."""
    gold, completion = case["gold"], case["completion"]
    for part in case.get("expand", []):
        completion = completion.replace(part["token"], part["text"] * part["times"])
        gold = gold.replace(part["token"], part["text"] * part["times"])
    return gold, completion


def verdict(gold: str, completion: str) -> bool | str:
    """True, False, or the name of the null status."""
    try:
        read = read_gold(gold)
        found = extract(completion)
        return False if found is None else equal(gold=read, answer=found.answer)
    except BadGold:
        return "bad_gold"
    except TooLarge:
        return "too_large"


def is_right(case: dict[str, Any], result: bool | str) -> bool:
    """Whether a verdict is what the case expects; a null counts as no verdict of true."""
    if case["kind"] == "hang":
        return not (result is True and case.get("never_true"))
    if isinstance(result, str):
        return case["expect"] is False and bool(case.get("null_ok"))
    return result is case["expect"]


def share(right: int, count: int) -> str:
    return f"{right:4d}/{count:<4d} {right / count:7.2%}" if count else "      -       "


def report_cases() -> None:
    """One line for each category, then the totals and the misses."""
    cases = [json.loads(line) for line in CASES.read_text("utf-8").splitlines()]
    cases = [case for case in cases if case["kind"] not in ("xml", "hang")]
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    sure = [0, 0, 0, 0]
    wrong_trues = [0, 0, 0, 0]
    misses = []
    for case in cases:
        result = verdict(*expanded(case))
        rights = (
            is_right(case, result),
            case["math_verify_0_9"] is case["expect"],
            case.get("math_verify_0_9_boxed_gold", case["math_verify_0_9"]) is case["expect"],
        )
        trues = (
            result is True,
            case["math_verify_0_9"] is True,
            case.get("math_verify_0_9_boxed_gold", case["math_verify_0_9"]) is True,
        )
        row = counts[case["kind"], case["category"]]
        for column, hit in enumerate((True, *rights)):
            row[column] += hit
            if case["confidence"] == "sure":
                sure[column] += hit
        if case["confidence"] == "sure" and case["expect"] is False:
            for column, hit in enumerate((True, *trues)):
                wrong_trues[column] += hit
        if not rights[0]:
            misses.append((case, result))
    print(f"{'kind':16s} {'category':18s} {'n':>4s}  {'hallmark':>12s}  {'math-verify':>12s}  {'boxed gold':>12s}")
    for (kind, category), (count, *rights_by_engine) in counts.items():
        print(
            f"{kind:16s} {category:18s} {count:4d}  "
            + "  ".join(f"{right:4d} {right / count:7.1%}" for right in rights_by_engine)
        )
    names = ("hallmark", "math-verify 0.9.0", "math-verify, boxed gold")
    print()
    for name, right, paid in zip(names, sure[1:], wrong_trues[1:], strict=True):
        print(
            f"sure cases, {name:24s} {share(right, sure[0])}   "
            f"wrong trues among sure negatives: {paid} of {wrong_trues[0]}"
        )
    print(f"\nmisses: {len(misses)}")
    for case, result in misses:
        print(
            f"  {case['id']} {case['confidence']:9s} expect {case['expect']!s:5s} "
            f"got {result!s:9s} gold {case['gold']!r}"
        )
        print(f"      completion {case['completion'][:160]!r}\n      {case['why']}")


def report_hangs() -> None:
    """Each hostile case: its verdict and its time."""
    cases = [json.loads(line) for line in CASES.read_text("utf-8").splitlines()]
    cases = [case for case in cases if case["kind"] == "hang"]
    quick = 0
    print("\nhang cases")
    for case in cases:
        gold, completion = expanded(case)
        began = time.perf_counter()
        result = verdict(gold, completion)
        spent = time.perf_counter() - began
        quick += spent < 0.05
        flag = "" if is_right(case, result) else "  WRONG"
        print(
            f"  {case['id']} {case['category']:12s} {result!s:9s} {spent * 1e3:8.2f} ms   "
            f"math-verify {case.get('math_verify_0_9_seconds', 0):6.2f} s{flag}"
        )
    print(f"  under 50 ms: {quick} of {len(cases)}")


def report_gsm8k() -> None:
    """The labels of the published model solutions against our verdicts, and the time for each."""
    golds = [json.loads(line)["answer"] for line in (GSM8K / "test.jsonl").read_text("utf-8").splitlines()]
    rows = [json.loads(line) for line in (GSM8K / "example_model_solutions.jsonl").read_text("utf-8").splitlines()]
    agreed = count = 0
    began = time.perf_counter()
    differences = []
    for gold, row in zip(golds, rows, strict=True):
        for model in MODELS:
            result = verdict(gold, row[model]["solution"])
            count += 1
            agreed += result is row[model]["is_correct"]
            if result is not row[model]["is_correct"]:
                differences.append((gold[-20:], row[model]["solution"][-60:], row[model]["is_correct"], result))
    spent = time.perf_counter() - began
    print(
        f"\nGSM8K: {share(agreed, count)} labels reproduced, "
        f"{spent / count * 1e6:.1f} µs a verdict (gold read once a group)"
    )
    for difference in differences:
        print("  differs:", difference)


if __name__ == "__main__":
    if not CASES.exists():
        sys.exit(f"no cases at {CASES}")
    report_cases()
    report_hangs()
    report_gsm8k()
