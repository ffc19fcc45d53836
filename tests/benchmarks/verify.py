"""Verification over HTTP beside the loop that people paste into their trainer: `make bench-verify`.

The naive loop is `verify(parse(gold), parse(completion))` of math-verify, in one process, in the main thread, its
timers on. The service is a real one on a real port. Both get the same texts in turn, five times; every service is
fresh, so its caches are cold and each text is sent once. Medians; verdicts are compared in the same run.
"""

from __future__ import annotations

import json
import logging
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles

import httpx
import psutil
from math_verify import parse, verify

from tests.benchmarks.service import call, serving_nothing
from tests.conftest import SHARED, Server
from tests.service.pool.test_hang_cases import expanded

ROUNDS = 5
GROUPS_A_CALL = 64
CALLS_AT_A_TIME = 3
Groups = list[tuple[str, list[str]]]
Verdicts = list[bool | None]


def gsm8k(limit: int | None = None) -> Groups:
    rows = [json.loads(one) for one in lines("data/gsm8k/example_model_solutions.jsonl")[:limit]]
    return [
        (
            row["ground_truth"].rpartition("A:")[2].strip(),
            [one["solution"] for one in row.values() if isinstance(one, dict)],
        )
        for row in rows
    ]


def latex(*, repeated: bool) -> Groups:
    """Groups of 8 boxed answers out of the corpus' golds: half of them repeated, or all distinct and most wrong."""
    rng = random.Random(0)
    golds = [
        case["gold"].strip("$")
        for case in map(json.loads, lines("cases/verification.jsonl"))
        if case["kind"] == "math" and case["gold"] and len(case["gold"]) < 80
    ]
    groups = []
    for n, gold in enumerate(rng.sample(golds, 160)):
        others = rng.sample([one for one in dict.fromkeys(golds) if one != gold], 7)
        answers = [gold, *others[:3]] * 2 if repeated else [gold, *others]
        rng.shuffle(answers)
        groups.append((rf"\boxed{{{gold}}}", [f"Problem {n}: the answer is $\\boxed{{{one}}}$." for one in answers]))
    return groups


def hostile_stream() -> tuple[Groups, set[tuple[int, int]]]:
    """GSM8K groups with 1 % of hang cases strewn in, all texts distinct; and where those are."""
    groups = gsm8k(500)
    hangs = [case for case in map(json.loads, lines("cases/verification.jsonl")) if case["kind"] == "hang"]
    rng = random.Random(1)
    places: set[tuple[int, int]] = set()
    for n in range(len(groups) * 4 // 100):
        gold, completion = expanded(hangs[n % len(hangs)])
        g = rng.randrange(len(groups))
        groups.insert(g, (gold, [completion + " " * n]))
        places = {(one + (one >= g), c) for one, c in places} | {(g, 0)}
    return groups, places


def lines(name: str) -> list[str]:
    return (SHARED / name).read_text(encoding="utf-8").splitlines()


# ---- contenders --------------------------------------------------------------------------------------------


def naive(gold: str, completion: str) -> bool:
    return bool(verify(parse(gold), parse(completion)))


def naive_loop(groups: Groups) -> tuple[float, Verdicts]:
    started = time.perf_counter()
    verdicts: Verdicts = [naive(gold, one) for gold, completions in groups for one in completions]
    return time.perf_counter() - started, verdicts


def service(groups: Groups, rule: str, *, seconds_of_workers: list[float] | None = None) -> tuple[float, Verdicts]:
    """All groups through a fresh service, some dozens a call and some calls at a time, as trainers do."""

    def score(start: int) -> list[list[float | None]]:
        part = [
            {"id": str(n), "gold": gold, "completions": completions}
            for n, (gold, completions) in enumerate(groups[start : start + GROUPS_A_CALL])
        ]
        response = http.post(server.url + "/v1/score", json={"rewards": [{"id": rule}], "groups": part})
        return [group["totals"] for group in response.raise_for_status().json()["groups"]]

    with tempfile.TemporaryDirectory() as folder, httpx.Client(timeout=600) as http:
        server = Server(Path(folder) / "log", allow_drafts=True)
        try:
            server.wait_ready()
            verdicts: Verdicts = []
            started = time.perf_counter()
            with ThreadPoolExecutor(CALLS_AT_A_TIME) as threads:
                for totals in threads.map(score, range(0, len(groups), GROUPS_A_CALL)):
                    verdicts += [None if value is None else value == 1.0 for group in totals for value in group]
            seconds = time.perf_counter() - started
            if seconds_of_workers is not None:
                seconds_of_workers.append(cpu_of_children(server))
            return seconds, verdicts
        finally:
            server.stop()


def cpu_of_children(server: Server) -> float:
    children = psutil.Process(server.process.pid).children(recursive=True)
    return sum(sum(child.cpu_times()[:2]) for child in children)


def pools() -> dict[str, Callable[[Groups], float]]:
    """The usual process pools on the naive function, two workers each; those that are installed."""

    def flat(groups: Groups) -> list[tuple[str, str]]:
        return [(gold, one) for gold, completions in groups for one in completions]

    def executor(groups: Groups) -> float:
        with ProcessPoolExecutor(2) as pool:
            list(pool.map(naive, *zip(*flat(groups[:8]), strict=True)))
            started = time.perf_counter()
            list(pool.map(naive, *zip(*flat(groups), strict=True), chunksize=8))
            return time.perf_counter() - started

    found: dict[str, Callable[[Groups], float]] = {"ProcessPoolExecutor": executor}
    try:
        import loky

        def with_loky(groups: Groups) -> float:
            pool = loky.get_reusable_executor(max_workers=2)
            list(pool.map(naive, *zip(*flat(groups[:8]), strict=True)))
            started = time.perf_counter()
            list(pool.map(naive, *zip(*flat(groups), strict=True), chunksize=8))
            return time.perf_counter() - started

        found["loky"] = with_loky
    except ImportError:
        print("loky is not installed (pip install loky): left out")
    try:
        import pebble

        def with_pebble(groups: Groups) -> float:
            with pebble.ProcessPool(max_workers=2) as pool:
                list(pool.map(naive, *zip(*flat(groups[:8]), strict=True), timeout=10).result())
                started = time.perf_counter()
                list(pool.map(naive, *zip(*flat(groups), strict=True), timeout=10).result())
                return time.perf_counter() - started

        found["pebble, 10 s an item"] = with_pebble
    except ImportError:
        print("pebble is not installed (pip install pebble): left out")
    return found


# ---- reports -----------------------------------------------------------------------------------------------


def compare(title: str, groups: Groups, rules: Sequence[str]) -> None:
    count = sum(len(completions) for _, completions in groups)
    print(f"\n{title}: {count} completions in {len(groups)} groups")
    times: dict[str, list[float]] = {name: [] for name in ("naive", *rules)}
    verdicts: dict[str, Verdicts] = {}
    for _ in range(ROUNDS):
        for name in times:
            seconds, verdicts[name] = naive_loop(groups) if name == "naive" else service(groups, name)
            times[name].append(seconds)
    base = median(times["naive"])
    for name, taken in times.items():
        same = sum(a == b for a, b in zip(verdicts[name], verdicts["naive"], strict=True))
        rate = count / median(taken)
        print(
            f"  {name:14} {median(taken):7.2f} s  {rate:8.0f} /s  {base / median(taken):6.2f} x naive"
            f"   {same / count:7.2%} of the verdicts as naive, {verdicts[name].count(None)} null"
        )


def latency(rule: str, groups: Groups) -> None:
    """One group of 8 alone, beside an endpoint that does nothing, call by call in turn."""
    pairs = list(zip(groups[::2], groups[1::2], strict=False))[:300]
    bodies = [
        {"id": str(n), "gold": gold, "completions": [*some, *more]} for n, ((gold, some), (_, more)) in enumerate(pairs)
    ]
    with tempfile.TemporaryDirectory() as folder, serving_nothing() as idle, httpx.Client(timeout=60) as http:
        server = Server(Path(folder) / "log", allow_drafts=True)
        try:
            server.wait_ready()
            both = [(call(http, server.url, rule, [one]), call(http, idle, rule, [one])) for one in bodies]
        finally:
            server.stop()
    print(f"\none group of 8 GSM8K solutions alone, {len(both)} calls, in turn")
    for name, times in ((rule, [one for one, _ in both]), ("nothing", [one for _, one in both])):
        print(f"  {name:14} p50 {median(times) * 1e3:6.2f} ms   p99 {quantiles(times, n=100)[98] * 1e3:6.2f} ms")


def hostile(rule: str) -> None:
    groups, places = hostile_stream()
    count = sum(len(completions) for _, completions in groups)
    print(f"\nGSM8K with {len(places)} hang cases among {count} completions, all distinct")
    cpu: list[float] = []
    seconds, verdicts = service(groups, rule, seconds_of_workers=cpu)
    where = [(g, c) for g, (_, completions) in enumerate(groups) for c in range(len(completions))]
    nulls = [place for place, verdict in zip(where, verdicts, strict=True) if verdict is None]
    healthy = [group for g, group in enumerate(groups) if (g, 0) not in places]
    calm: list[float] = []
    service(healthy, rule, seconds_of_workers=calm)
    base, _ = naive_loop(groups)
    print(f"  naive          {base:7.2f} s")
    print(f"  {rule:14} {seconds:7.2f} s   {base / seconds:6.1f} x naive")
    print(
        f"  healthy items null: {len([place for place in nulls if place not in places])}; hang cases null: {len(nulls)}"
    )
    print(f"  worker CPU lost to the hang cases: {cpu[0] - calm[0]:.2f} s (limit 2 s each)")


def beside_pools(groups: Groups) -> None:
    count = sum(len(completions) for _, completions in groups)
    print(f"\nthe naive function in process pools of 2, {count} completions, and the service")
    for name, run in pools().items():
        print(f"  {name:22} {count / median([run(groups) for _ in range(3)]):8.0f} /s")
    for rule in ("math.equal@1", "math.equal@2"):
        print(f"  {'service, ' + rule:22} {count / median([service(groups, rule)[0] for _ in range(3)]):8.0f} /s")


def main() -> None:
    if not SHARED.is_dir():
        raise SystemExit("this benchmark reads ../shared, which is not here")
    logging.disable(logging.CRITICAL)
    naive("1", r"\boxed{1}")
    compare("GSM8K solutions", gsm8k(), ["math.equal@1", "math.equal@2"])
    compare("LaTeX answers, half repeated", latex(repeated=True), ["math.equal@2"])
    compare("LaTeX answers, none repeated, most wrong", latex(repeated=False), ["math.equal@2"])
    latency("math.equal@2", gsm8k())
    hostile("math.equal@2")
    beside_pools(gsm8k(250))


if __name__ == "__main__":
    main()
