"""Completions for tests: generated ones in many layouts, and hostile ones of any length."""

from __future__ import annotations

import random

from reward_service.worker.types import Item

GOLDS = ("72", "18", "3.5", "1/2", r"\frac{1}{2}", "-5", "1,000", "$x+1$", r"$\frac{3}{4}$", "0", "12%")
_ANSWERS = (
    *("72", "18", "3.5", "0.5", r"\frac{1}{2}", "-5", "1000", "x+1", "0.75", "7", "", "72 apples"),
    *("$72", "12\\%", "4,2"),
)
_SAYINGS = (
    *(r"\boxed{@}", r"so $@$.", r"The final answer is $@$. I hope it is correct.", "#### @", "Answer: @"),
    "answer: $@$",
    *(r"\[ \boxed{@} \]", r"\(@\)", "@", "= @", r"$\boxed{@}$ and $\boxed{7}$", "Answer: \\boxed{@}\n"),
    "First, @\n- then\n",
)
_PIECES = (
    *("<think>", "</think>", "<answer>", "</answer>", "<reasoning>", "</reasoning>"),
    *("\n", "\n\n", " ", "Step 1:", "\r\n"),
)

# Gold and answer that math-verify holds equal, and unequal once they are exchanged.
ONE_WAY = (
    ("1<x<2", "(1,2)"),
    ("1<x<2", r"\{1,2\}"),
    ("x>1", r"(1,\infty)"),
    ("x^2-1=0", r"\{-1,1\}"),
    ("1", "1=1"),
    (r"100\%", "1=1"),
)


def generated(seed: int) -> tuple[str, str]:
    """A completion and a gold: half of them in a known layout, half of them a heap of tags, formulas and words."""
    rng = random.Random(seed)
    tag = rng.choice(("think", "reasoning"))
    said = rng.choice(_SAYINGS).replace("@", rng.choice(_ANSWERS))
    layout = rng.randrange(8)
    if layout < 4:
        gap = rng.choice(("", "\n", "\n\n", " ", "x"))
        line = rng.choice(("\n", "\n", "", "\r\n", "\n\n"))
        body = rng.choice(("why", "a\nb", "First, one\n- two\n* three", "", said))
        text = f"<{tag}>{line}{body}{line}</{tag}>{gap}<answer>{line}{said}{line}</answer>"
        text += rng.choice(("", "", "\n", "\n\n", " more", "<|im_end|>", "\nx\n"))
    elif layout < 6:
        text = "".join(rng.choice((*_PIECES, said, "word ")) for _ in range(rng.randrange(14)))
    else:
        text = " ".join(rng.choice(_SAYINGS).replace("@", rng.choice(_ANSWERS)) for _ in range(rng.randrange(5)))
    return text, rng.choice(GOLDS)


def tokens(text: str) -> tuple[int, ...]:
    """Stand-in token ids: one for each run of white space or not, equal where the text is."""
    return tuple(sum(map(ord, word)) for word in text.split())


def item(completion: str, *, gold: str | None = None) -> Item:
    """An item with everything a reward may need."""
    ids = tokens(completion)
    return Item(completion, gold=gold, token_count=len(ids), token_ids=ids, metadata={"json_schema": {"type": "array"}})


# A unit that is repeated to the wanted length, around it what must stand once.
HOSTILE = {
    "letters": ("", "a ", ""),
    "white space": ("1", " ", ""),
    "newlines": ("<think>", "\n", "</think>"),
    "opening think": ("", "<think>", ""),
    "closing think": ("<think>", "</think>", ""),
    "think border": ("<think>", "</think><answer>", ""),
    "reasoning border": ("<reasoning>", "</reasoning> <answer>", ""),
    "border and space": ("<think>x</think>", " ", "<answer>7</answer>"),
    "opening answer": ("", "<answer>", ""),
    "closing answer": ("<think>\nx\n</think>\n<answer>", "\n</answer>", "x"),
    "answers": ("", "<answer>72</answer>", ""),
    "answer lines": ("<think>\n", "\n</think>\n<answer>\n", ""),
    "open boxes": ("", "\\boxed{", ""),
    "boxes": ("", "\\boxed{72} ", ""),
    "braces": ("\\boxed{", "{", ""),
    "open formulas": ("", "\\(", ""),
    "open displays": ("", "\\[\\boxed{a}", ""),
    "dollars": ("", "$ ", ""),
    "digits": ("", "7", ""),
    "numbers": ("", "7 ", ""),
    "sum": ("\\boxed{1", "+1", "}"),
    "points": ("#### ", "1.", ""),
    "letters to choose": ("", "A or B or ", "C"),
    "answer is": ("", "the answer is A, ", ""),
    "answer and space": ("answer", " ", ""),
    "end of turn": ("<think>a</think><answer>72</answer>", "<|im_end|>", ""),
    "json": ("[1", ",1", "]"),
    "json depth": ("", "[", ""),
    "json string": ('["', '\\"', ""),
    "commas": ("<answer>1", ",000", "</answer>"),
    "steps": ("", "Step 1", ""),
    "unicode": ("", "数", ""),
}


def hostile(name: str, *, length: int) -> str:
    """The hostile text of this name, cut to about this length."""
    before, unit, after = HOSTILE[name]
    return before + unit * ((length - len(before) - len(after)) // len(unit)) + after
