"""Hallmark's reward for staying in one script, the cheap half of R1's language consistency (arXiv 2501.12948).

No detector of languages: the ones that are kept up (py3langid, lingua) bring numpy's floats or 96 MB into the lock, and
lines of mathematics are too short for them. Scripts are tables, so the number is the same everywhere for ever.
"""

from __future__ import annotations

import re

from reward_service.worker.catalogue import reward
from reward_service.worker.types import NO_ANSWER, Item, Outcome

# Code points of letters, by the script that a reader would name.
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_SCRIPTS = {
    "latin": "A-Za-z\u00aa-\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff\uff21-\uff3a\uff41-\uff5a",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "cyrillic": "\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f",
    "hebrew": "\u05d0-\u05ea",
    "arabic": "\u0620-\u064a\u066e-\u06d3\u0750-\u077f\u08a0-\u08ff",
    "devanagari": "\u0904-\u0939\u0958-\u0961",
    "thai": "\u0e01-\u0e2e\u0e40-\u0e46",
    "hangul": "\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3",
    "chinese": _HAN,
    "japanese": _HAN + "\u3041-\u3096\u30a1-\u30fa\u30fc",
}
_LETTERS = {script: re.compile(f"[{ranges}]+") for script, ranges in _SCRIPTS.items()}
_COMMAND = re.compile(r"\\[A-Za-z]+|</?[A-Za-z]{1,40}>")


@reward("language.script", version=1, range=(0.0, 1.0), source="Hallmark")
def script_v1(item: Item, *, script: str = "latin") -> Outcome:
    """The share of letters that belong to `script`: latin, greek, cyrillic, hebrew, arabic, devanagari, thai, hangul,
    chinese or japanese.

    LaTeX commands and tags are no letters, nor are Latin and Greek ones that stand alone among others, as x and π do.
    """
    text = _COMMAND.sub(" ", item.completion)
    counts = {name: _count_v1(text, name) for name in _SCRIPTS if name not in ("chinese", "japanese")}
    han_and_kana, wanted = _count_v1(text, "japanese"), _count_v1(text, script)
    total = sum(counts.values()) + han_and_kana
    return Outcome(wanted / total) if total else Outcome(0.0, NO_ANSWER)


def _count_v1(text: str, script: str) -> int:
    return sum(len(run) for run in _LETTERS[script].findall(text) if len(run) > 1 or script not in ("latin", "greek"))
