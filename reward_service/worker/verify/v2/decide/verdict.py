"""The gold read once, and the verdict on an answer: cheap exact decisions first, then the grammar."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from reward_service.worker.types import BadGold, TooLarge
from reward_service.worker.verify.v2.algebra.expressions import Num
from reward_service.worker.verify.v2.algebra.numbers import plain_number
from reward_service.worker.verify.v2.decide.meanings import matches
from reward_service.worker.verify.v2.decide.values import has_value, same_number
from reward_service.worker.verify.v2.find.boxes import boxed_answer
from reward_service.worker.verify.v2.find.normalisation import clean, doubled_backslashes, without
from reward_service.worker.verify.v2.find.statements import find_marker
from reward_service.worker.verify.v2.mean.kinds import Finite, Meaning, Value
from reward_service.worker.verify.v2.mean.meaning import meaning
from reward_service.worker.verify.v2.mean.regions import WHOLE_LINE
from reward_service.worker.verify.v2.read.parser import parse
from reward_service.worker.verify.v2.read.tokens import Token, Unread, tokenize
from reward_service.worker.verify.v2.tables import EMPTY_SET_WORDS, OPTION_LETTERS, REAL_LINE_WORDS

MAX_LENGTH = 10_000
_LONGEST_CLEANED = 10 * MAX_LENGTH
_CACHED_LENGTH = 4_000
_CACHED_GOLDS = 1_024
_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mbox|operatorname)\s*(?=\{)")
_WORDS = re.compile(r"[^\W\d_]+(?:[ '\-][^\W\d_]+)*")
_PROSE = re.compile(r"(?=.*[^\W\d_])\w[\w\s'’.,:;!?()\-/&\"%]*")
_CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s+)?[(\[]?([A-Za-z])[)\]]?([.:)]\s*\S.*|\s+\([^()]{3,}\))?",
    re.IGNORECASE | re.DOTALL,
)
_ONLY_LETTERS = re.compile(r"(?:\W+(?:(?:or|and)\W+)?[A-Ja-j](?![^\W_]))+\W*", re.IGNORECASE)
_LONGEST_BARE = 200
_ARTICLE = re.compile(r"^(?:an?|the)\s+(?=\w{3})", re.IGNORECASE)
_LABELLED = re.compile(r"\(?[A-J][).:]\s+\w|(?:option|choice)\s+\(?[A-Ja-j]\)?$", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")


@dataclass(frozen=True, slots=True)
class Gold:
    """A reference answer in every form that a decision needs; `sense` is None when it is a text."""

    text: str
    number: Num | None
    letter: str
    words: str
    key: tuple[str, ...]
    sense: Meaning | None


def read_gold(gold: str) -> Gold:
    """Read a reference answer to its end, or raise BadGold; a rationale means its `#### N` or its box."""
    return _cached(gold) if len(gold) <= _CACHED_LENGTH else _read(gold)


@lru_cache(maxsize=_CACHED_GOLDS)
def _cached(gold: str) -> Gold:
    return _read(gold)


def _read(gold: str) -> Gold:
    core = without(gold, doubled_backslashes(gold))
    core = core.rpartition("####")[2].lstrip(": ") if "####" in core else core
    boxed = boxed_answer(core) if "box" in core else None
    if boxed is None and len(core) > _LONGEST_BARE:
        # a whole solution: its "final answer is …"
        boxed = find_marker(core)
    core = core[boxed[0] : boxed[1]] if boxed else core
    if len(core) > _LONGEST_CLEANED:
        raise BadGold("the gold is longer than any answer")
    text = clean(core)
    if not text:
        raise BadGold("the gold is empty")
    if len(text) > MAX_LENGTH:
        raise BadGold("the gold is longer than any answer")
    number = plain_number(text)
    if number is not None:
        return Gold(text, number, "", "", (), Value(number))
    words = words_of(text)
    if phrase := _phrase(words):
        return Gold(text, None, "", words, (), phrase)
    letter = choice_letter(text) if _LABELLED.match(text) or len(_letters(text)) == 1 else ""
    try:
        tokens = tokenize(text)
        sense = meaning(parse(tokens))
    except (TooLarge, RecursionError) as error:
        raise BadGold("the gold is too large to read") from error
    except Unread as error:
        if _PROSE.fullmatch(_TEXT_COMMAND.sub("", text).strip("{} ")) and not plain_number(text):
            return Gold(text, None, letter, words or _folded(text), (), None)
        raise BadGold("the gold cannot be read to its end") from error
    return Gold(text, None, letter, words, key_of(tokens), sense)


def equal(*, gold: Gold, answer: str) -> bool:
    """Whether the answer is equal to the gold. Raises TooLarge when a guard refuses to look."""
    if gold.number is not None and answer.startswith("A:"):
        # `A: 42` to a question, not an option with its text
        answer = answer[2:].strip()
    number = plain_number(answer)
    if number is None:
        if len(answer) > _LONGEST_CLEANED:
            return _too_long(gold, answer)
        answer = clean(answer)
        if not answer:
            return False
        number = plain_number(answer)
    if number is not None and gold.number is not None:
        return same_number(gold.number, number)
    if gold.letter:
        letter = choice_letter(answer)
        if letter:
            return letter == gold.letter and _same_case(gold.text, answer, letter)
    if len(answer) > MAX_LENGTH:
        return _too_long(gold, answer)
    return _read_and_compare(gold, answer)


def _same_case(gold: str, answer: str, letter: str) -> bool:
    """Options may be written in either case; a variable, and e and i, may not."""
    if letter in OPTION_LETTERS and gold not in ("e", "i"):
        return True
    return (letter in gold and letter in answer) or (letter.lower() in gold and letter.lower() in answer)


def _too_long(gold: Gold, answer: str) -> bool:
    """An answer of pages is not equal to a gold that is none: false, for a null would be a policy's refuge."""
    if len(answer) > 4 * len(gold.text):
        return False
    raise TooLarge("the answer is longer than any answer")


def _read_and_compare(gold: Gold, answer: str) -> bool:
    words = words_of(answer)
    if words and gold.words:
        if words == gold.words:
            return True
        if gold.sense is None:
            return False
    if (phrase := _phrase(words)) is not None:
        return gold.sense is not None and matches(gold.sense, phrase)
    try:
        tokens = tokenize(answer)
    except Unread:
        return gold.sense is None and _folded(answer) == gold.words
    key = key_of(tokens)
    if key and key == gold.key:
        return not isinstance(gold.sense, Value) or has_value(gold.sense)
    if gold.sense is None:
        return _folded(answer) == gold.words
    if gold.number is not None and _is_long_integer(tokens):
        return False
    try:
        sense = meaning(parse(tokens))
        return matches(gold.sense, sense) or _decimal_comma(gold, answer, sense)
    except Unread:
        return False
    except RecursionError as error:
        # the parser bounds nesting; this is the net under it
        raise TooLarge("the expression is nested too deeply") from error


def _phrase(words: str) -> Meaning | None:
    """Words that are mathematics: no solution, all real numbers."""
    if words in EMPTY_SET_WORDS:
        return Finite(())
    return WHOLE_LINE if words in REAL_LINE_WORDS else None


def _is_long_integer(tokens: list[Token]) -> bool:
    """More digits than any plain gold has: not equal, and not worth a conversion."""
    return len(tokens) == 1 and tokens[0].text.isdigit() and len(tokens[0].text.lstrip("0")) > 20


def _decimal_comma(gold: Gold, answer: str, sense: Meaning) -> bool:
    """`1000,99` is 1000.99 where the other side is that very decimal, or where a leading zero rules out a list."""
    for written, other in ((answer, gold.sense), (gold.text, sense)):
        if isinstance(other, Value) and _DECIMAL_COMMA.fullmatch(written):
            number = plain_number(written.replace(",", ".", 1))
            exact = other.expr
            if (
                number is not None
                and number.value.denominator != 1
                and isinstance(exact, Num)
                and exact.value == number.value
            ):
                return True
    return False


def key_of(tokens: list[Token]) -> tuple[str, ...]:
    """Identity of two texts up to white space and looks; a space that separates two digits is a token border."""
    return tuple(token.text for token in tokens)


def _letters(text: str) -> list[str]:
    return [character for character in _TEXT_COMMAND.sub("", text) if character.isalnum()]


def words_of(text: str) -> str:
    """The text as plain words in one spelling, empty when it is anything else."""
    bare = (
        _TEXT_COMMAND.sub("", text).replace("{", "").replace("}", "").strip(" .$()")
        if "\\" in text or "{" in text
        else text
    )
    if not _WORDS.fullmatch(bare):
        return ""
    # two letters may be the ends of a segment, where case matters
    bare = _ARTICLE.sub("", bare)
    return bare.casefold() if len(bare) > 2 or bare.casefold() == "no" else bare


def _folded(text: str) -> str:
    return " ".join(_TEXT_COMMAND.sub("", text).replace("{", "").replace("}", "").casefold().split()).strip(" .")


def choice_letter(text: str) -> str:
    """The option that the text names (`B`, `(b)`, `B. a yellow bus`, `\\text{(C)}`), in upper case; empty for none."""
    bare = _TEXT_COMMAND.sub("", text) if "\\" in text else text
    match = _CHOICE.fullmatch(bare.replace("{", "").replace("}", "").strip(" .$*"))
    if match is None or _ONLY_LETTERS.fullmatch(match.group(2) or ""):
        return ""
    return match.group(1).upper()
