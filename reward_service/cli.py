"""`reward-service`: serve, show what is served, print the contract, record a release."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import httpx
import uvicorn
from reward_proto import v1

from reward_service import __version__
from reward_service.aliases import StoreError
from reward_service.cli_suites import add_aliases, add_suites
from reward_service.locks import LOCKS, LockError, build, how_to_build, python_of
from reward_service.same_numbers import differences
from reward_service.served import OWN_REWARDS
from reward_service.settings import Settings
from reward_service.suites import SuiteError
from reward_service.vectors import check, read_vectors
from reward_service.worker.catalogue import Reward
from reward_service.worker.modules import Loaded, load, read_released, record_release, released_file

_COMPARED_AT_ONCE = 256


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = _parser().parse_args(argv)
    sys.exit(arguments.run(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("reward-service", description="Versioned rewards for GRPO, served over HTTP.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", required=True)
    serve = commands.add_parser(
        "serve",
        help="serve rewards (the same as `uvicorn reward_service.app:app`)",
        epilog=_settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    serve.add_argument("--port", type=int, default=8000, help="port to listen on (8000)")
    serve.set_defaults(run=_serve)
    rewards = commands.add_parser("rewards", help="list the rewards with range, needs and digest")
    rewards.add_argument("--rewards-module", help="a module or .py file with rewards of your own")
    rewards.add_argument("--markdown", action="store_true", help="as the table of the README")
    rewards.set_defaults(run=_rewards)
    commands.add_parser("openapi", help="print the OpenAPI document of the contract").set_defaults(run=_openapi)
    release = commands.add_parser("release", help="record a reward of this source tree as released")
    release.add_argument("id", help="such as math.equal@2")
    release.add_argument("--rewards-module", help="a module or .py file with rewards of your own")
    release.add_argument(
        "--same-numbers",
        action="store_true",
        help="of a released reward whose source moved for speed or safety: proven against --against on --vectors",
    )
    release.add_argument("--vectors", type=Path, help="JSONL of its golden vectors (tests/golden/ID.jsonl)")
    release.add_argument("--against", default="HEAD", help="the commit to compare with (HEAD)")
    release.set_defaults(run=_release)
    compare = commands.add_parser(
        "compare", help="list the completions that two rewards of a running service judge differently"
    )
    compare.add_argument("first", help="a reward id")
    compare.add_argument("second", help="another")
    compare.add_argument("file", type=Path, help='JSONL with "gold" and "completion" (or "text") in each line')
    compare.add_argument("--url", default="http://127.0.0.1:8000", help="where the service answers")
    compare.set_defaults(run=_compare)
    locks = commands.add_parser("locks", help="package versions that rewards promise their numbers on")
    lock_commands = locks.add_subparsers(title="commands", required=True)
    build_locks = lock_commands.add_parser("build", help="build the virtual environments of locks")
    build_locks.add_argument("names", nargs="*", help="which locks (all)")
    build_locks.add_argument("--wheels", type=Path, help="install offline, from a folder of wheels")
    build_locks.set_defaults(run=_build_locks)
    lock_commands.add_parser("list", help="list the locks and whether they are built").set_defaults(run=_list_locks)
    add_suites(commands)
    add_aliases(commands)
    return parser


def _settings_help() -> str:
    lines = ["settings, as environment variables:"]
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        lines.append(f"  REWARD_{name.upper():20} {field.description} ({default})")
    return "\n".join(lines)


def _serve(arguments: argparse.Namespace) -> int:
    try:
        from reward_service.app import app  # reads the settings and the suite files: not for the other commands to do
    except (SuiteError, StoreError) as error:
        print(error, file=sys.stderr)
        return 2
    uvicorn.run(app, host=arguments.host, port=arguments.port)
    return 0


def _rewards(arguments: argparse.Namespace) -> int:
    # The catalogue belongs to the workers: imported here, by a command that serves nothing.
    loaded = _load(arguments.rewards_module)
    if arguments.markdown:
        print(reward_table(loaded.catalogue))
        return 0
    for reward in loaded.catalogue:
        low, high = ("unbounded" if edge is None else f"{edge:g}" for edge in reward.range)
        state = "released" if reward.id in loaded.released else "draft"
        needs = ", ".join(reward.needs) or "nothing"
        digest = loaded.catalogue.digest(reward.id)
        print(f"{reward.id:28} {low:>9} … {high:<5} needs {needs:18} {state:8} {digest}")
    return 0


def reward_table(rewards: Iterable[Reward]) -> str:
    """Rewards as a Markdown table: id, range, needs, source, rule."""
    lines = ["| id | range | needs | source | rule |", "|---|---|---|---|---|"]
    for reward in rewards:
        low, high = ("∞" if edge is None else f"{edge:g}" for edge in reward.range)
        needs = ", ".join([*reward.needs, *(f"uses {used}" for used in reward.uses)])
        cells = [f"`{reward.id}`", f"{'−' if low == '∞' else ''}{low} … {high}", needs, reward.source]
        rule = reward.doc.partition("\n\n")[0].replace("\n", " ")
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in (*cells, rule))} |")
    return "\n".join(lines)


def _load(plugin: str | None) -> Loaded:
    own = [OWN_REWARDS, *(lock.module for lock in LOCKS)]
    loaded = load([*own, *([plugin] if plugin else [])])
    for module, error in loaded.failed.items():
        raise SystemExit(f"{module}: {error}")
    return loaded


def _openapi(arguments: argparse.Namespace) -> int:
    from reward_service.app import app

    print(json.dumps(app.openapi(), indent=2, sort_keys=True))
    return 0


def _release(arguments: argparse.Namespace) -> int:
    loaded = _load(arguments.rewards_module)
    reward_id, catalogue = arguments.id, loaded.catalogue
    if arguments.same_numbers and arguments.vectors is None:
        print("--same-numbers is proven on vectors: name them with --vectors", file=sys.stderr)
        return 2
    if reward_id not in catalogue:
        print(f"no reward has the id {reward_id}; `reward-service rewards` lists all", file=sys.stderr)
        return 2
    file = released_file(catalogue[reward_id].function.__module__)
    if reward_id in read_released(file) and not arguments.same_numbers:
        print(f"{reward_id} is released already, and a released version never moves: add a version", file=sys.stderr)
        return 2
    if arguments.same_numbers:
        differing = list(check(catalogue, reward_id, read_vectors(arguments.vectors)))
        # A plugin's earlier source is not in our history: its vectors are the proof.
        if arguments.rewards_module is None:
            differing += differences(reward_id, arguments.vectors, against=arguments.against)
        if differing:
            print("\n".join(differing), file=sys.stderr)
            print(f"{reward_id} does not pay what it paid: add a version", file=sys.stderr)
            return 1
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    digest = record_release(file, catalogue, reward_id, date=today)
    print(f"released {reward_id} {digest} in {file}")
    return 0


def _build_locks(arguments: argparse.Namespace) -> int:
    wanted = [lock for lock in LOCKS if not arguments.names or lock.name in arguments.names]
    unknown = set(arguments.names) - {lock.name for lock in LOCKS}
    if unknown:
        print(
            f"no lock is called {', '.join(unknown)}; there are {', '.join(one.name for one in LOCKS)}", file=sys.stderr
        )
        return 2
    for lock in wanted:
        try:
            print(f"{lock.name}: {build(lock, Settings().locks_dir, wheels=arguments.wheels)}")
        except LockError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def _list_locks(arguments: argparse.Namespace) -> int:
    for lock in LOCKS:
        state = "built" if python_of(lock, Settings().locks_dir) else f"not built: {how_to_build(lock)}"
        print(f"{lock.name:20} {', '.join(lock.rewards):28} {state}")
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    rows = [json.loads(line) for line in arguments.file.read_text(encoding="utf-8").split("\n") if line.strip()]
    rules, differing = (arguments.first, arguments.second), 0
    with httpx.Client(base_url=arguments.url, timeout=600) as http:
        for start in range(0, len(rows), _COMPARED_AT_ONCE):
            part = rows[start : start + _COMPARED_AT_ONCE]
            groups = [
                {"id": str(n), "gold": row.get("gold"), "completions": [row.get("completion", row.get("text", ""))]}
                for n, row in enumerate(part)
            ]
            response = http.post(v1.SCORE_PATH, json={"rewards": [{"id": one} for one in rules], "groups": groups})
            if response.status_code != 200:
                print(f"{response.status_code}: {response.text}", file=sys.stderr)
                return 1
            for row, group in zip(part, response.json()["groups"], strict=True):
                (first,), (second,) = (group["scores"][rule] for rule in rules)
                if first != second:
                    differing += 1
                    print(f"{first!s:>5} {second!s:>5}  gold {row.get('gold')!a}  {_cut(row)!a}")
    print(f"{differing} of {len(rows)} differ ({arguments.first}, {arguments.second})")
    return 0


def _cut(row: dict[str, object]) -> str:
    return str(row.get("completion", row.get("text", "")))[:120]


if __name__ == "__main__":
    main()
