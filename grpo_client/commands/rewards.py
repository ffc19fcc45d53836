"""`grpo-client rewards`: what a service serves, one reward or suite in full, or texts scored by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from reward_proto import v1

from grpo_client.config import TrainConfig, parse_reward
from grpo_client.errors import ConfigError
from grpo_client.options.flags import Parser, all_flags
from grpo_client.options.settings import resolve
from grpo_client.rewards.client import RewardClient
from grpo_client.terminal import columns, one_line

_SUMMARY = "List the rewards and suites that a service serves, show some in full, or score texts by hand."
_EXAMPLES = """examples:
  grpo-client rewards --reward-url http://localhost:8000                 every reward and suite
  grpo-client rewards math.equal@2                                       one in full
  grpo-client rewards --score --reward math.equal@2 --gold 1/2 'so \\boxed{0.5}' 'it is 0.4'
"""
_SHOWN_DIGEST = len("sha256:") + 12


class RewardsConfig(BaseModel):
    """Which service to ask."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reward_url: str = Field(
        default=TrainConfig.model_fields["reward_url"].default, description="Where the reward service answers."
    )
    reward_timeout: float = Field(default=60.0, gt=0, description="Seconds that one call may take.")


def main(arguments: Sequence[str]) -> int:
    """List, show or score."""
    parser = Parser("grpo-client rewards", description=_SUMMARY, epilog=_EXAMPLES)
    parser.add_argument("words", nargs="*", default=[], metavar="ID | TEXT", help="a reward or suite; texts to score")
    parser.add_argument("--score", action="store_true", help="score the texts")
    parser.add_argument("--reward", action="append", metavar="ID", help="a reward to score with; may be repeated")
    parser.add_argument("--suite", metavar="NAME", help="a suite to score with")
    parser.add_argument("--gold", action="append", metavar="TEXT", help="the right answer; may be repeated")
    parser.add_argument("--prompt", metavar="TEXT", help="the prompt, for rewards that need one")
    parser.add_flags(all_flags(RewardsConfig))
    given = parser.read(arguments)
    config = resolve(RewardsConfig, given.settings[RewardsConfig], faults=given.faults)
    others = given.others
    with RewardClient(config.reward_url, timeout=config.reward_timeout, retry_seconds=0.0) as client:
        if others.get("score"):
            lines = _score(client, others["words"], others)
        elif others["words"]:
            lines = [line for word in others["words"] for line in _details(client, word)]
        else:
            lines = _everything(client)
        print("\n".join(lines))
    return 0


def _everything(client: RewardClient) -> list[str]:
    info, suites = client.info(), client.suites()
    lines = [
        f"{one_line(client.url)}: service {one_line(info.service)}, contract {one_line(info.contract)}",
        "",
        "rewards:",
    ]
    lines += columns(
        [
            [
                one_line(one.id),
                one.status + (", deprecated" if one.deprecated else ""),
                one_line(one.digest[:_SHOWN_DIGEST]),
                one_line(", ".join([*one.needs, *(f"uses {used}" for used in one.uses)])) or "-",
                one_line(" ".join(one.doc.partition("\n\n")[0].split())),
            ]
            for one in client.rewards()
        ]
    )
    lines += ["", "suites:"]
    lines += columns([[one_line(one.id), one.status, one_line(_parts(one))] for one in suites])
    aliases = client.aliases()
    if aliases:
        lines += ["", "aliases:"]
        lines += columns(
            [[one_line(one.alias), one_line(one.target), f"since {one_line(one.moved_at)}"] for one in aliases]
        )
    return lines


def _parts(suite: v1.SuiteInfo) -> str:
    return ", ".join(f"{one.id} × {one.weight:g}" for one in suite.rewards)


def _details(client: RewardClient, name: str) -> Iterable[str]:
    """A reward, or else a suite, in full."""
    try:
        cells = _of_reward(client.reward(name))
    except ConfigError as no_reward:
        try:
            cells = _of_suite(client.suite(name))
        except ConfigError:
            raise no_reward from None
    rows = [[key if not i else "", one_line(line)] for key, text in cells for i, line in enumerate(text.split("\n"))]
    return [*columns(rows, indent=""), ""]


def _of_reward(info: v1.RewardInfo) -> list[tuple[str, str]]:
    return [
        ("id", info.id),
        ("doc", info.doc),
        ("source", info.source),
        ("parameters", "\n".join(_parameters(info.params)) or "-"),
        ("range", " … ".join("unbounded" if end is None else f"{end:g}" for end in info.range)),
        ("needs", ", ".join(info.needs) or "-"),
        ("uses", ", ".join(info.uses) or "-"),
        ("status", info.status + (", deprecated" if info.deprecated else "")),
        ("digest", info.digest),
        ("history", "\n".join(info.history) or "-"),
        ("lock", ", ".join(f"{package} {version}" for package, version in info.lock.items()) or "-"),
    ]


def _parameters(schema: Mapping[str, Any]) -> Iterable[str]:
    """A line a parameter: its name, its default or that it has none, and what its schema says beside."""
    for name, one in schema.get("properties", {}).items():
        default = f"= {json.dumps(one['default'], ensure_ascii=False)}" if "default" in one else "(required)"
        rest = {key: value for key, value in one.items() if key not in ("default", "title", "type")}
        yield f"{name} {default}  {one.get('type', '')} {json.dumps(rest, ensure_ascii=False) if rest else ''}".rstrip()


def _of_suite(info: v1.SuiteInfo) -> list[tuple[str, str]]:
    def part(one: v1.SuiteReward) -> str:
        params = f"  {json.dumps(one.params, ensure_ascii=False)}" if one.params else ""
        return f"{one.id} × {one.weight:g}" + (f", named {one.name}" if one.name != one.id else "") + params

    return [
        ("id", info.id),
        ("doc", info.doc),
        ("rewards", "\n".join(part(one) for one in info.rewards)),
        ("status", info.status),
        ("digest", info.digest),
    ]


def _score(client: RewardClient, texts: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    rewards, suite, golds = options.get("reward"), options.get("suite"), options.get("gold")
    if not texts or (rewards is None) == (suite is None):
        raise ConfigError(
            "--score takes texts, and the rewards to score them with: --reward ID (repeatable) or --suite"
        )
    named = [parse_reward(str(one)) for one in rewards] if isinstance(rewards, list) else []
    manifest = client.resolve(suite=str(suite) if suite else None, rewards=named)
    completions = [v1.Completion(text=text) for text in texts]
    group = v1.Group.model_validate(
        {"id": "by-hand", "completions": completions}
        | ({"gold": golds} if golds else {})
        | ({"prompt": options["prompt"]} if "prompt" in options else {})
    )
    (scored,) = client.score(manifest, [group])
    lines = []
    for i, text in enumerate(texts):
        lines.append(f"{one_line(text)[:200]}")
        rows = [
            [
                one_line(name),
                _number(scored.scores[name][i]),
                one_line(scored.statuses[name][i]),
                _detail((scored.details.get(name) or [None] * len(texts))[i]),
            ]
            for name in manifest.names
        ]
        lines += columns([*rows, ["total", _number(scored.totals[i]), "", ""]])
    return lines


def _detail(detail: v1.Detail | None) -> str:
    if detail is None:
        return ""
    return one_line(", ".join(f"{key} {value!r}" for key, value in detail.model_dump(exclude_none=True).items()))


def _number(value: float | None) -> str:
    return "null" if value is None else f"{value:g}"
