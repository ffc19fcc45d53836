"""A worker's loop: what one reward leaves behind, a later one does not find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.conftest import Server

PLUGIN = '''
"""One reward that changes what its process shares, and one that looks at it. The completion names what."""
import decimal, random, sys, warnings
import mpmath
from reward_service.worker.catalogue import Catalogue, reward

def look(what):
    """What it is now, as a number."""
    match what:
        case "mpmath precision":
            return mpmath.mp.prec
        case "decimal precision":
            return decimal.getcontext().prec
        case "decimal traps":
            return decimal.getcontext().traps[decimal.DivisionByZero]
        case "recursion limit":
            return sys.getrecursionlimit()
        case "warnings":
            return warnings.filters[0][0] == "error"
        case "random numbers":
            return random.random()

def spoil(what):
    """Something else."""
    match what:
        case "mpmath precision":
            mpmath.mp.dps = 700
        case "decimal precision":
            decimal.getcontext().prec = 3
        case "decimal traps":
            decimal.getcontext().traps[decimal.DivisionByZero] = False
        case "recursion limit":
            sys.setrecursionlimit(5000)
        case "warnings":
            warnings.simplefilter("error")
        case "random numbers":
            random.seed(7)

@reward("state.sees", version=1, range=(0, None))
def sees_v1(item):
    return look(item.completion)

@reward("state.spoils", version=1, range=(0, None))
def spoils_v1(item):
    spoil(item.completion)
    return look(item.completion)

CATALOGUE = Catalogue([sees_v1, spoils_v1])
'''
STATES = ["mpmath precision", "decimal precision", "decimal traps", "recursion limit", "warnings", "random numbers"]


def test_what_a_reward_changes_in_its_process_no_later_one_sees(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "state_rewards.py").write_text(PLUGIN)
    server = start_server(rewards_module=tmp_path / "state_rewards.py", allow_drafts=1, workers=1)
    names = {"before": "state.sees@1", "while": "state.spoils@1", "after": "state.sees@1"}
    body = {
        "rewards": [{"id": reward_id, "name": name} for name, reward_id in names.items()],
        "groups": [{"id": "g", "gold": None, "completions": STATES}],
    }
    scores = server.http.post("/v1/score", json=body).json()["groups"][0]["scores"]
    seen = {name: dict(zip(STATES, column, strict=True)) for name, column in scores.items()}
    assert seen["after"] == seen["before"]
    assert [state for state in STATES if seen["while"][state] == seen["before"][state]] == []
