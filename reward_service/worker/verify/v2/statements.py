"""Reading prose for its answer: markers such as "the answer is", the clause behind them, the last statement."""

from __future__ import annotations

import re

from reward_service.worker.verify.v2.bare import is_bare_answer, trimmed
from reward_service.worker.verify.v2.formulas import final_expression, formula_at, with_companions

Span = tuple[int, int]

_TAIL = 20_000
_LAST_WORDS = 120
_MARKERS_TRIED = 12
_CLAUSE_WINDOW = 1_500
_EXPRESSION_WINDOW = 3_000
_MARKER = re.compile(
    r"####|\banswers?\b|\b(?:correct|right|best)\s(?:option|choice)\b|^[ \t]*A(?=:)"
    r"|答案|réponse|respuesta|antwort|resposta|risposta|ответ|정답|答え",
    re.IGNORECASE | re.MULTILINE,
)
_LINK = re.compile(
    r"[\s*_]*(?:\([^()\n]{0,30}\)[\s*_]*)?(?:(?:to|for|of)\s[^.:\n=]{0,120}?\s)?(?:\w{1,12}\s+){0,3}?"
    r"(?:(?:is|are|was|be|equals|est|es|ist|sind|são|é|è|son)\b|是|为|為|は|[:：=])[\s*_:：]*",
    re.IGNORECASE,
)
_DIRECT = re.compile(r"[\s*_:#]*\n\s*|[\s*_]*(?=\$|\\\(|\\\[)|(?<=[案え답])\s*")
_HASHES = re.compile(r"[ \t:*]*")
_NEGATED = re.compile(r"(?:definitely |certainly )?not\b", re.IGNORECASE)
_INSTEAD = re.compile(r"not\s[^.\n]{1,60}?,?\s(?:but|rather)\s(?:rather\s)?", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\.(?=\s|$|[*\"'”)])|[!?](?=\s|$)|[。！？]|\n|</|<\|")
_CLAUSE_END = re.compile(
    r"[,;]?\s+(?:because|since|as|which|where|when|so|therefore|due|given|but|while|for|after|if)\b"
    r"|\s+\((?=\s*[A-Za-z]{2})|,\s+(?:we|it|the|that|not|and we)\b"
    r"|\s+[—–]\s|[,，]?\s*因为",
    re.IGNORECASE,
)
_LABELLED = re.compile(r"\(?[A-J][).:]\s+\S")
_LETTER = re.compile(r"\(?[A-Za-z]\)?")
_LAST_VERB = re.compile(r"\b(?:is|are|equals|be)\b[:\s]*", re.IGNORECASE)
_NOT_BEFORE = re.compile(r"\b(?:not|n't|never|isn't)\s+(?:equal\s+to\s+|be\s+|=\s*)?$", re.IGNORECASE)
_CHOICE_STATED = re.compile(
    r"(?i:\b(?:choose|chose|select|pick|go with|going with|option|choice)\s+(?:option\s|choice\s|answer\s)?)"
    r"[(\[*]{0,3}([A-J])\b(?!['’-])"
    r"|\(?\b([A-J])\)?\s+is\s+(?:the\s+)?(?:correct|right|best)\b"
)


def find_marker(text: str) -> Span | None:
    """The answer behind the last marker that is followed by one."""
    if len(text) > _LAST_WORDS:
        # nearly always the marker stands in the last lines, and the search need not go further back
        span, _ = _marked(text, len(text) - _LAST_WORDS)
        if span is not None:
            return span
    span, spare = _marked(text, max(0, len(text) - _TAIL))
    return span or spare


def _marked(text: str, base: int) -> tuple[Span | None, Span | None]:
    """The last marked answer behind `base` that looks like one, and the last that is at least short."""
    spare: Span | None = None
    for marker in reversed(list(_MARKER.finditer(text, base))[-_MARKERS_TRIED:]):
        start = _behind(text, marker)
        if start is None:
            continue
        span = _clause(text, start)
        if span is None:
            continue
        answer = text[span[0] : span[1]]
        if _LETTER.fullmatch(answer) or _LABELLED.match(answer) or is_bare_answer(answer):
            return span, None
        inner = final_expression(text, *span) or _after_verb(text, span)
        if inner is not None:
            return inner, None
        if spare is None and marker.group() != "####" and len(answer) <= 80:
            spare = span
    return None, spare


def _behind(text: str, marker: re.Match[str]) -> int | None:
    """Where the answer of this marker begins; None when the word is used in another way."""
    if marker.group() == "####":
        match = _HASHES.match(text, marker.end())
        return match.end() if match and text[match.end() : match.end() + 1] not in ("", "\n", "#") else None
    match = _LINK.match(text, marker.end()) or _DIRECT.match(text, marker.end())
    return match.end() if match else None


def _clause(text: str, start: int) -> Span | None:
    """From the start of the answer to the end of its formula, or of its clause."""
    start, _ = trimmed(text, start, min(len(text), start + _CLAUSE_WINDOW))
    if _NEGATED.match(text, start):
        instead = _INSTEAD.match(text, start)
        if instead is None:
            return None
        start = instead.end()
    formula = formula_at(text, start, len(text))
    if formula is not None:
        return with_companions(text, formula)
    end = min(len(text), start + _CLAUSE_WINDOW)
    stop = _SENTENCE_END.search(text, start, end)
    if stop is not None:
        end = stop.start()
    clause = _CLAUSE_END.search(text, start + 1, end)
    if clause is not None:
        end = clause.start()
    start, end = trimmed(text, start, end)
    return (start, end) if start < end else None


def _after_verb(text: str, span: Span) -> Span | None:
    """`I think it is C`: what stands behind the last verb, when that is a letter or a formula."""
    last = None
    for last in _LAST_VERB.finditer(text, *span):
        pass
    if last is None or _NEGATED.match(text, last.end()):
        return None
    start, end = trimmed(text, last.end(), span[1])
    answer = text[start:end]
    return (start, end) if _LETTER.fullmatch(answer) or is_bare_answer(answer) else None


def stated_choice(text: str) -> Span | None:
    """The last option that a sentence chooses: "I choose C", "option B is correct"."""
    last = None
    for match in _CHOICE_STATED.finditer(text, max(0, len(text) - _EXPRESSION_WINDOW)):
        if not _NOT_BEFORE.search(text, max(0, match.start() - 24), match.start()):
            last = match
    return None if last is None else last.span(last.lastindex or 0)


def final_statement(text: str) -> Span | None:
    """`So the area is 25π.`: what the last sentence says something is, when that is all formula."""
    tail = text.rstrip(' \n\t.!"*')
    sentence = max(tail.rfind(". "), tail.rfind("\n"), tail.rfind("? "), len(tail) - 300, -1) + 1
    last = None
    for last in _LAST_VERB.finditer(tail, sentence):
        pass
    if last is None or _NEGATED.match(tail, last.end()):
        return None
    start, end = trimmed(tail, last.end(), len(tail))
    return (start, end) if start < end and is_bare_answer(tail[start:end]) else None


def final_words(text: str) -> Span | None:
    """`The capital is Paris.`: up to four words behind the last verb of the last sentence."""
    tail = text.rstrip(' \n\t.!"*')
    sentence = max(tail.rfind(". "), tail.rfind("\n"), tail.rfind("? "), len(tail) - 300, -1) + 1
    last = None
    for last in _LAST_VERB.finditer(tail, sentence):
        pass
    if last is None or _NEGATED.match(tail, last.end()):
        return None
    start, end = trimmed(tail, last.end(), len(tail))
    return (start, end) if start < end and len(tail[start:end].split()) <= 4 else None
