"""Workers under fire: hangs, kills from outside, stalls, deadlines, and what is left when the service ends."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import psutil
import pytest

from tests.conftest import Server

TOWER = r"\boxed{\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)} - 5}{16}}"
Start = Callable[..., Server]


def processes_of(server: Server) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children(recursive=True)


def workers_of(server: Server) -> list[psutil.Process]:
    (fork_server,) = psutil.Process(server.process.pid).children()
    return fork_server.children()


def metric(server: Server, name: str) -> float:
    lines = server.http.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def until(what: Callable[[], bool], within: float = 20.0) -> bool:
    """Whether it becomes true in time."""
    deadline = time.monotonic() + within
    while not (done := what()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return done


def gone(processes: list[psutil.Process], within: float = 5.0) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=within)
    return not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


@contextlib.contextmanager
def at_work(server: Server) -> Iterator[None]:
    """Leaves when a worker has begun with what is asked for inside."""
    before = cpu_of(server)
    yield
    assert until(lambda: cpu_of(server) > before + 0.05), "no worker has begun"


def cpu_of(server: Server) -> float:
    """CPU seconds of all workers."""
    return sum(sum(worker.cpu_times()[:2]) for worker in workers_of(server))


def test_a_hung_item_is_timeout_and_its_neighbours_get_their_right_value(server: Server) -> None:
    completions = [r"\boxed{5}", TOWER, r"\boxed{6}", r"\boxed{\frac{10}{2}}", "no idea"]
    group = server.score(["math.equal@1", "r1.int@1"], "5", completions)
    assert group["scores"]["math.equal@1"] == [1.0, None, 0.0, 1.0, 0.0]
    assert group["statuses"]["math.equal@1"] == ["scored", "timeout", "scored", "scored", "no_answer"]
    assert group["scores"]["r1.int@1"] == [0.0] * 5  # of the hung completion too: the clock is of one reward on it
    assert group["totals"] == [1.0, None, 0.0, 1.0, 0.0]
    assert server.score(["math.equal@1"], "5", [r"\boxed{5}"])["totals"] == [1.0]


def test_neighbours_of_a_hung_item_do_not_wait_for_it(start_server: Start) -> None:
    server = start_server(workers=2, unit_cpu_seconds=3)
    answers: dict[str, float] = {}

    def ask(name: str, completions: list[object]) -> None:
        server.score(["math.equal@1"], "5", completions)
        answers[name] = time.monotonic()

    slow = threading.Thread(target=ask, args=("slow", [TOWER, r"\boxed{5}"]))
    with at_work(server):
        slow.start()
    ask("quick", [r"\boxed{5}"])
    slow.join()
    assert answers["quick"] < answers["slow"]


def test_workers_killed_from_outside_cost_nothing(start_server: Start) -> None:
    server = start_server(workers=2)
    completions: list[object] = [rf"\boxed{{\frac{{{n}}}{{7}} + x}}" for n in range(1000)]
    answer: dict[str, object] = {}
    asking = threading.Thread(
        target=lambda: answer.update(server.score(["math.equal@1"], r"\frac{3}{7}+x", completions))
    )
    before = workers_of(server)
    with at_work(server):
        asking.start()
    assert asking.is_alive(), "answered before anything was killed: ask for more"
    for worker in before:
        worker.kill()
    asking.join()
    assert answer["totals"] == [float(n == 3) for n in range(1000)]
    assert set(answer["statuses"]["math.equal@1"]) == {"scored"}  # type: ignore[index]
    assert until(lambda: metric(server, "hallmark_worker_respawns_total") >= 2)
    assert not {one.pid for one in before} & {one.pid for one in workers_of(server)}


def test_a_killed_fork_server_is_replaced(start_server: Start) -> None:
    server = start_server(workers=1)
    old = processes_of(server)
    psutil.Process(server.process.pid).children()[0].kill()
    assert gone(old)
    assert until(lambda: bool(processes_of(server)))
    assert server.score(["r1.int@1"], None, ["7"])["totals"] == [0.5]


def test_a_stalled_worker_changes_no_verdict(start_server: Start) -> None:
    server = start_server(workers=1, unit_cpu_seconds=0.5)
    completions: list[object] = [rf"\boxed{{\frac{{{n}}}{{7}} + x}}" for n in range(300)]
    answer: dict[str, object] = {}
    asking = threading.Thread(
        target=lambda: answer.update(server.score(["math.equal@1"], r"\frac{3}{7}+x", completions))
    )
    with at_work(server):
        asking.start()
    (worker,) = workers_of(server)
    worker.suspend()
    time.sleep(1.2)  # more than the clock would allow if it were the wall's
    assert asking.is_alive(), "answered before anything was stopped: ask for more"
    worker.resume()
    asking.join()
    assert answer["totals"] == [float(n == 3) for n in range(300)]
    assert metric(server, "hallmark_worker_kills_total") == 0


def test_what_the_deadline_cuts_short_is_expired_and_what_was_done_counts(start_server: Start) -> None:
    server = start_server(workers=1, unit_cpu_seconds=5)
    group = server.score(["math.equal@1"], "5", [r"\boxed{5}", TOWER], deadline_ms=2000)
    assert group["scores"]["math.equal@1"] == [1.0, None]
    assert group["statuses"]["math.equal@1"] == ["scored", "expired"]


def test_a_request_whose_deadline_passes_in_the_queue_is_503_with_retry_after(start_server: Start) -> None:
    server = start_server(workers=1, unit_cpu_seconds=2)
    hung = threading.Thread(target=lambda: server.score(["math.equal@1"], "5", [TOWER]))
    with at_work(server):
        hung.start()
    body = {
        "rewards": [{"id": "r1.int@1"}],
        "groups": [{"id": "g", "gold": None, "completions": ["7"]}],
        "deadline_ms": 200,
    }
    response = httpx.post(server.url + "/v1/score", json=body)
    hung.join()
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1


def test_a_worker_over_its_memory_is_killed_and_its_item_too_large(start_server: Start) -> None:
    server = start_server(workers=1, unit_cpu_seconds=20, worker_memory_mb=200)
    group = server.score(["math.equal@1"], r"\log_{2}85", [r"\boxed{1000000007}", r"\boxed{\log_{2}85}"])
    assert group["statuses"]["math.equal@1"] == ["too_large", "scored"]
    assert group["scores"]["math.equal@1"] == [None, 1.0]


def test_a_caller_that_leaves_frees_its_queued_items(start_server: Start) -> None:
    server = start_server(workers=1, unit_cpu_seconds=1)
    body = {
        "rewards": [{"id": "math.equal@1"}],
        "groups": [{"id": str(n), "gold": "5", "completions": [TOWER + " " * n]} for n in range(30)],
    }
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(server.url + "/v1/score", json=body, timeout=0.5)
    assert server.score(["r1.int@1"], None, ["7"])["totals"] == [0.5]
    assert metric(server, "hallmark_worker_kills_total") <= 2  # a hung unit may run out; thirty may not
    assert metric(server, "hallmark_queued_units") == 0


def test_a_long_text_is_too_large_and_its_neighbour_is_scored(start_server: Start) -> None:
    server = start_server(max_text_chars=1000)
    group = server.score(["r1.int@1"], None, ["7" * 1001, "7" * 1000])
    assert group["statuses"]["r1.int@1"] == ["too_large", "scored"]
    assert group["totals"] == [None, 0.5]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("busy", [False, True])
def test_no_process_outlives_the_service(start_server: Start, number: signal.Signals, busy: bool) -> None:
    server = start_server(workers=2, unit_cpu_seconds=2)
    children = processes_of(server)
    assert len(children) == 3
    if busy:
        with at_work(server):
            threading.Thread(target=ask_and_be_cut_off, args=(server.url,), daemon=True).start()
    os.kill(server.process.pid, number)
    server.process.wait(15)
    assert gone(children)


def ask_and_be_cut_off(url: str) -> None:
    body = {"rewards": [{"id": "math.equal@1"}], "groups": [{"id": "g", "gold": "5", "completions": [TOWER]}]}
    try:
        httpx.post(url + "/v1/score", json=body, timeout=10)
    except httpx.TransportError:
        return


def test_requests_take_turns(start_server: Start) -> None:
    server = start_server(workers=1)
    large = {
        "rewards": [{"id": "math.equal@1"}],
        "groups": [
            {"id": str(n), "gold": "x", "completions": [rf"\boxed{{x + {n} y^{k}}}" for k in range(16)]}
            for n in range(40)
        ],
    }
    ended: dict[str, float] = {}

    def ask_large() -> None:
        httpx.post(server.url + "/v1/score", json=large, timeout=60).raise_for_status()
        ended["large"] = time.monotonic()

    asking = threading.Thread(target=ask_large)
    with at_work(server):
        asking.start()
    server.score(["math.equal@1"], "1", [r"\boxed{1}"])
    ended["small"] = time.monotonic()
    asking.join()
    assert ended["small"] < ended["large"]
