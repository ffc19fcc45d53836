"""A worker's life: take a chunk, answer it unit by unit, take the next. The parent's clock ends what does not end."""

from __future__ import annotations

import decimal
import mmap
import random
import select
import socket
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import mpmath

from reward_service.worker.catalogue import Catalogue
from reward_service.worker.evaluate import evaluate, evaluate_group
from reward_service.worker.frames import Decoder, encode, receive
from reward_service.worker.messages import (
    DONE,
    GROUP,
    PLACE,
    STOP,
    WHOLE_GROUP,
    ChunkMessage,
    Completion,
    PortionMessage,
)
from reward_service.worker.modules import OWN_PACKAGE
from reward_service.worker.types import Found, Item, Outcome

MAX_ANSWER_CHARS = 256
SECONDS_BETWEEN_SENDS = 0.002
_RECURSION_LIMIT = 2000


def work(connection: socket.socket, progress: mmap.mmap, catalogue: Catalogue) -> None:
    """Answer chunks until the parent closes the connection.

    The place of the unit at hand stands in `progress`, which the parent sees at any time: results may wait some
    milliseconds to be sent together. Shapes and words are those of `worker.messages`.
    """
    decoder = Decoder()
    while (messages := receive(connection, decoder)) is not None:
        for message in messages:
            # A STOP that arrives after its chunk has ended is stale.
            if message != STOP:
                connection.sendall(encode([*_answer_chunk(connection, progress, catalogue, message), DONE]))


def _answer_chunk(
    connection: socket.socket, progress: mmap.mmap, catalogue: Catalogue, chunk: ChunkMessage
) -> list[Any]:
    """Do the units of a chunk. Returns the results that have not been sent."""
    results: list[Any] = []
    sent, begun = time.monotonic(), False
    for portion in chunk["portions"]:
        items = [_item(portion, Completion(*completion)) for completion in portion["completions"]]
        for unit in portion["units"]:
            # The parent speaks up during a chunk only to stop it: the word stays in the socket for `work` to drop.
            if begun and select.select([connection], [], [], 0)[0]:
                return results
            if results and time.monotonic() - sent > SECONDS_BETWEEN_SENDS:
                connection.sendall(encode(results))
                results, sent = [], time.monotonic()
            PLACE.pack_into(progress, 0, unit[0])
            results.append(_answer(catalogue, portion, items, *unit))
            begun = True
    return results


def _answer(
    catalogue: Catalogue, portion: PortionMessage, items: Sequence[Item], place: int, completion: int, index: int
) -> list[Any]:
    reward_id, params = portion["rewards"][index]
    reward = catalogue[reward_id]
    restore_state()
    if not reward.function.__module__.startswith(OWN_PACKAGE):
        random.seed(0)  # dearer than many a reward; none of our own draws from the global generator
    if completion == WHOLE_GROUP:
        outcomes = evaluate_group(reward, items, used=_used(portion["used"]), params=params)
        return [place, [_result(outcome) for outcome in outcomes], GROUP, None]
    return [place, *_result(evaluate(reward, items[completion], golds=portion["golds"], params=params))]


def _used(used: Mapping[str, Sequence[tuple[float | None, str]]]) -> dict[str, list[Outcome]]:
    return {reward_id: [Outcome(value, status) for value, status in column] for reward_id, column in used.items()}


def _result(outcome: Outcome) -> list[Any]:
    return [outcome.value, outcome.status, _detail(outcome)]


def _item(portion: PortionMessage, completion: Completion) -> Item:
    golds, token_ids = portion["golds"], completion.token_ids
    return Item(
        completion=completion.text,
        gold=golds[0] if golds else None,
        prompt=tuple(portion["prompt"]),
        metadata=portion["metadata"],
        token_count=completion.token_count,
        token_ids=None if token_ids is None else tuple(token_ids),
        finish_reason=completion.finish_reason,
    )


def _detail(outcome: Outcome) -> dict[str, Any] | None:
    found: Found | None = outcome.found
    if outcome.error is not None:
        return {"error": outcome.error}
    if found is None or outcome.value is None:
        return None
    return {"answer": found.answer[:MAX_ANSWER_CHARS], "by": found.by, "span": found.span}


def restore_state() -> None:
    """Put back what a reward or a library under it could have changed and a later item would notice."""
    sys.setrecursionlimit(_RECURSION_LIMIT)
    decimal.setcontext(decimal.DefaultContext.copy())
    mpmath.mp.prec = 53
    warnings.simplefilter("ignore")
