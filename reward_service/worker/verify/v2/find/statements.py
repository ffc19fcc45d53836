"""Reading prose for its answer: markers such as "the answer is", the clause behind them, the last statement."""

from __future__ import annotations

import re

from reward_service.worker.verify.v2.find.bare import is_bare_answer, trimmed
from reward_service.worker.verify.v2.find.formulas import final_expression, formula_at, with_companions

Span = tuple[int, int]

_TAIL = 20_000
_LAST_WORDS = 120
_MARKERS_TRIED = 12
_CLAUSE_WINDOW = 1_500
_EXPRESSION_WINDOW = 3_000
_MARKER = re.compile(
    r"####|\banswers?\b|\bans\b(?=\.?\s?[:=]|\.\s)|\b(?:correct|right|best)\s(?:option|choice)\b|^[ \t]*A(?=:)"
    r"|答案|故选|应选|réponse|respuesta|antwort|resposta|risposta|ответ|정답|답(?=은|[:：])|答え|正解",
    re.IGNORECASE | re.MULTILINE,
)
_LINK = re.compile(
    r"[\s*_]*(?:\([^()\n]{0,30}\)[\s*_]*)?(?:(?:to|for|of)\s[^.:\n=]{0,120}?\s)?(?:\w{1,12}\s+){0,3}?"
    r"(?:(?:is|are|was|be|equals|est|es|ist|lautet|sind|são|é|è|son)\b|是|为|為|は|은|[:：=]|[-–—](?=\s))[\s*_:：]*",
    re.IGNORECASE,
)
_DIRECT = re.compile(r"[\s*_:#]*\n\s*|[\s*_]*(?=\$|\\\(|\\\[)|(?<=[案え답选])\s*")
_HASHES = re.compile(r"[ \t:*]*")
_NEGATED = re.compile(r"(?:definitely |certainly )?not\b|不", re.IGNORECASE)
_DENIED_LINK = re.compile(r"\b(?:not|cannot|never|unlikely)\b|n['’]t\b|不", re.IGNORECASE)
_COPULA_BEHIND = re.compile(r"(?:입니다|이다|です|だ)\s*[.。]?\s*$")
_INSTEAD = re.compile(r"not\s[^.\n]{1,60}?,?\s(?:but|rather)\s(?:rather\s)?", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\.(?=\s|$|[*\"'”)])|[!?](?=\s|$)|[。！？]|\n|</|<\|")
_CLAUSE_END = re.compile(
    r"[,;]?\s+(?:because|since|as|which|where|when|so|therefore|due|given|but|while|for|after|if)\b"
    r"|\s+\((?=\s*[A-Za-z]{2})|,\s+(?:we|it|the|that|not|and we|namely)\b|,\s+(?:i\.e|e\.g)\b"
    r"|\s+[—–]\s|[,，]?\s*因为|[,，]\s*不",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"(?:unknown|unsure|unclear|none|nothing|undetermined|I\s(?:cannot|can['’]t|don['’]t))\b", re.IGNORECASE
)
_LABELLED = re.compile(r"\(?[A-J][).:]\s+\S")
_LETTER = re.compile(r"\(?[A-Za-z]\)?")
_LAST_VERB = re.compile(r"\b(?:is|are|equals|be)\b(?:\s+(?:at|equal\sto|about)\b)?[:\s]*", re.IGNORECASE)
_NOT_BEFORE = re.compile(r"\b(?:not|n't|never|isn't)\s+(?:equal\s+to\s+|be\s+|=\s*)?$|不$", re.IGNORECASE)
_DENIED_BEHIND = (
    r"(?!\W{0,4}(?:/|\s(?:or|and)\s\W{0,3}[A-J]\b|,\s?\W{0,3}[A-J]\b))"
    r"(?!\W{0,4}\s*(?:fails|cannot|(?:is|was|are|can|could|must|does|has|would)"
    r"(?:n['’]t|not|\s+(?:not|wrong|incorrect|false|be\s+(?:ruled|excluded|eliminated)))\b))"
)
_CHOICE_STATED = re.compile(
    r"(?i:\b(?:choose|chose|select|pick|go with|going with|option|choice|옵션)\s+(?:option\s|choice\s|answer\s)?"
    r"|选(?:择)?\s?)"
    rf"[(\[*]{{0,3}}([A-J])\b(?!['’-]){_DENIED_BEHIND}"
    r"|\(?\b([A-J])\)?\s+(?:is|seems|looks)\s+(?:the\s+)?(?:correct|right|best)\b"
    # a small letter only where it cannot be an article or a variable
    r"|\b(?:[Oo]ption|I (?:choose|pick|select|chose|go with))\s+[(*]{0,3}([a-j])\b"
    rf"(?=[)*]{{0,3}}(?:\s+(?:because|since|and|is)\b|[.,]|\s*$)){_DENIED_BEHIND}"
    r"|^\s*\(?([a-j])\)?\s+is\s+(?:the\s+)?(?:correct|right|best)\b"
)
_CHOICE_ASSERTED = re.compile(
    r"\bI\s(?:choose|pick|select|go\swith)\s[(*]{0,3}([A-J])\b(?!['’-])"
    r"|\b[Oo]ption\s[(*]{0,3}([A-J])[)*]{0,3}\sis\s(?:the\s)?(?:correct|right)\b"
)
_LONE_LETTER_BEFORE = re.compile(r"(?:^|\n)\s*[(*]{0,3}[A-J][)*.]{0,3}\s*$")
_IN_PARENTHESES = re.compile(r"\(([A-J])\)")
_CHOICE_AT_THE_END = re.compile(
    r"(?:[a-z]{2,}[,;:]\s+|\n\s*)[(*]{0,3}([A-J])[)*.]{0,3}\s*$|(?<=[a-z]\s)\(([A-J])\)[.]?\s*$"
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
        if _REFUSED.match(answer):
            return span, None
        if _LETTER.fullmatch(answer) or _LABELLED.match(answer) or is_bare_answer(answer):
            return span, None
        inner = final_expression(text, *span) or _after_verb(text, span)
        if inner is not None:
            return inner, None
        if spare is None and marker.group().strip() not in ("####", "A") and len(answer) <= 80:
            spare = span
    return None, spare


def _behind(text: str, marker: re.Match[str]) -> int | None:
    """Where the answer of this marker begins; None when the word is used in another way."""
    if marker.group() == "####":
        match = _HASHES.match(text, marker.end())
        return match.end() if match and text[match.end() : match.end() + 1] not in ("", "\n", "#") else None
    match = _LINK.match(text, marker.end()) or _DIRECT.match(text, marker.end())
    return match.end() if match and not _DENIED_LINK.search(match.group()) else None


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
    if not text.isascii() and (copula := _COPULA_BEHIND.search(text, start, end)) is not None:
        end = copula.start()
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


def _is_denied(text: str, verb: re.Match[str]) -> bool:
    """`is not 5`, `cannot be D`."""
    return bool(_NEGATED.match(text, verb.end()) or _DENIED_LINK.search(text, max(0, verb.start() - 12), verb.start()))


def stated_choice(text: str) -> Span | None:
    """The last option that a sentence chooses: "I choose C", "option B is correct"."""
    last = None
    for match in _CHOICE_STATED.finditer(text, max(0, len(text) - _EXPRESSION_WINDOW)):
        if not _NOT_BEFORE.search(text, max(0, match.start() - 24), match.start()):
            last = match
    return None if last is None else last.span(last.lastindex or 0)


def final_choice(text: str) -> Span | None:
    """An option letter that stands alone at the end: on its own line, behind a comma, in parentheses."""
    match = _CHOICE_AT_THE_END.search(text, max(0, len(text) - _LAST_WORDS))
    if match is None or _LONE_LETTER_BEFORE.search(text, max(0, match.start() - 20), match.start()):
        return None
    letters = set(_IN_PARENTHESES.findall(text, max(0, len(text) - _EXPRESSION_WINDOW)))
    return match.span(match.lastindex or 0) if len(letters) < 2 else None


def later_choice(text: str, behind: int) -> Span | None:
    """The option that a later sentence chooses or calls correct, behind an answer already given."""
    last = None
    for last in _CHOICE_ASSERTED.finditer(text, behind, behind + _EXPRESSION_WINDOW):
        pass
    return None if last is None else last.span(last.lastindex or 0)


def final_statement(text: str) -> Span | None:
    """`So the area is 25π.`: what the last sentence says something is, when that is all formula."""
    tail = text.rstrip(' \n\t.!"*')
    sentence = max(tail.rfind(". "), tail.rfind("\n"), tail.rfind("? "), len(tail) - 300, -1) + 1
    last = None
    for last in _LAST_VERB.finditer(tail, sentence):
        pass
    if last is None or _is_denied(tail, last):
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
    if last is None or _is_denied(tail, last):
        return None
    start, end = trimmed(tail, last.end(), len(tail))
    return (start, end) if start < end and len(tail[start:end].split()) <= 4 else None
