"""ms_swift.*@1 and open_r1.repetition@1 pay what ms-swift pays: its classes, our vectors, 1,000 completions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reward_service.worker.catalogue import Reward
from reward_service.worker.rewards import ms_swift, open_r1
from reward_service.worker.types import Item
from tests.peers.cases import expected_equal, vectors
from tests.peers.upstream import rewards_file
from tests.service.worker.rewards.samples import generated, item

pytestmark = pytest.mark.peer
ARGUMENTS = {
    "cosine_min_len_value_wrong": -0.5,
    "cosine_max_len_value_wrong": 0.0,
    "cosine_min_len_value_correct": 1.0,
    "cosine_max_len_value_correct": 0.5,
    "cosine_max_len": 1024,
    "repetition_n_grams": 3,
    "repetition_max_penalty": -1.0,
    "soft_max_length": 20480,
    "soft_cache_length": 4096,
}
# Our name of a reward and of a parameter → theirs.
CLASSES: dict[str, tuple[Reward, str]] = {
    "accuracy": (ms_swift.accuracy_v1, "MathAccuracy"),
    "format": (ms_swift.format_v1, "Format"),
    "react_format": (ms_swift.react_format_v1, "ReActFormat"),
    "cosine": (ms_swift.cosine_v1, "CosineReward"),
    "soft_overlong": (ms_swift.soft_overlong_v1, "SoftOverlong"),
    "repetition": (open_r1.repetition_v1, "RepetitionPenalty"),
}
PARAMS: dict[str, dict[str, Any]] = {
    "cosine": {"max_len": 20},
    "soft_overlong": {"soft_max_length": 9, "soft_cache_length": 4},
    "repetition": {"ngram_size": 2, "max_penalty": -0.5},
}
ARGUMENT_OF = {"ngram_size": "repetition_n_grams", "max_penalty": "repetition_max_penalty"}


def theirs(name: str, one: Item, params: dict[str, Any]) -> float:
    module = rewards_file("swift", "rewards/orm.py", reason="needs `pip install --no-deps ms-swift==4.6.0`")
    arguments = dict(ARGUMENTS)
    for param, value in params.items():
        argument = param if param in arguments else ARGUMENT_OF.get(param, f"cosine_{param}")
        assert argument in arguments
        arguments[argument] = value
    function = getattr(module, CLASSES[name][1])(SimpleNamespace(**arguments))
    ids = list(one.token_ids) if one.token_ids is not None else [0] * (one.token_count or 0)
    return float(function([one.completion], solution=[one.gold or ""], response_token_ids=[ids])[0])


# A gold that cannot be read: 0.0 there, and for cosine what a wrong answer pays.
BAD = {"accuracy": 0.0, "cosine": ...}


@pytest.mark.parametrize("name", CLASSES)
def test_a_thousand_generated_completions_are_paid_as_ms_swift_pays_them(name: str) -> None:
    for seed in range(1000):
        completion, gold = generated(seed)
        one, params = item(completion, gold=gold), PARAMS.get(name, {})
        expected_equal(CLASSES[name][0], one, params, theirs(name, one, params), bad=BAD.get(name))


@pytest.mark.parametrize("name", CLASSES)
def test_the_golden_vectors_are_paid_as_ms_swift_pays_them(name: str) -> None:
    for one, params in vectors(CLASSES[name][0].id):
        expected_equal(CLASSES[name][0], one, params, theirs(name, one, dict(params)), bad=BAD.get(name, ...))
