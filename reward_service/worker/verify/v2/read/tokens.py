"""The tokenizer: one pass over cleaned text, LaTeX and plain mathematics alike.

What it does not know it refuses with Unread; nothing is skipped but white space, delimiters and commands of mere looks.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from reward_service.worker.verify.v2.tables import (
    CONNECTORS,
    CONSTANTS,
    CURRENCY_SIGNS,
    DOTS,
    FACE_COMMANDS,
    FRACTION_COMMANDS,
    FUNCTIONS,
    GREEK,
    MATRIX_ENVIRONMENTS,
    OPTION_LETTERS,
    SCALES,
    SILENT_COMMANDS,
    TEXT_COMMANDS,
    UNIT_RUNS,
    UNITS,
)

NUMBER, SYMBOL, CONSTANT, FUNCTION, TEXT, CONNECTOR, COMMAND, SIGN, BEGIN, END = (
    "number", "symbol", "constant", "function", "text", "connector", "command", "sign", "begin", "end",
)  # fmt: skip


class Unread(Exception):
    """The text is not an expression that this grammar reads to the end."""


class Token(NamedTuple):
    """`spaced`: white space or a delimiter stood before it."""

    kind: str
    text: str
    spaced: bool


_MASTER = re.compile(
    r"""(?P<space>[\s~$]+|\\(?:left|right)\s*\.|\\[,;:!>\s()\[\]$])
    |(?P<rowbreak>\\\\(?:\[[^\]\n]{0,20}\])?)
    |(?P<number>[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?(?!,?\d|\.\d)|\d{1,3}(?:'\d{3})+(?!\d)
        |\d{1,3}(?:[ ]\d{3})+(?![\d/.,]|[ ](?!\d{1,2}/\d)[\d/])
        |\d*\.\d+(?:[eE][-+]?\d+)?|\d+\.(?=\(\d|\\overline|\\bar|\\dot\b)|\d+(?:[eE][-+]?\d+)?)
    |(?P<environment>\\(?:begin|end)\s*\{[A-Za-z]{1,20}\*?\})
    |(?P<command>\\[A-Za-z]+)
    |(?P<escaped>\\[{}%|&\#_])
    |(?P<word>[A-Za-z]+)
    |(?P<sign>\*\*|<=|>=|!=|==|\.{3}|[-+*/^_=<>(){}\[\]|,;:!%&'])
    |(?P<han>[\u4e00-\u9fff]+)""",
    re.VERBOSE,
)
# 1.234,5 may be 1234.5 or the list 1.234 and 5: refused rather than guessed. So are 1.234.567 and 1.5.2.
_AMBIGUOUS_NUMBER = re.compile(r"(?<![\d.,])\d{1,3}\.\d{3},\d+(?![\d.])|\d\.\d+\.\d")
_COLUMN_SPEC = re.compile(r"\s*\{[lcr|\s]{0,60}\}")
_VOWEL = re.compile("[aeiouAEIOU]")


def tokenize(text: str) -> list[Token]:
    """Cut cleaned text into tokens, or raise Unread."""
    if _AMBIGUOUS_NUMBER.search(text):
        raise Unread("a number that can be read in two ways")
    return _Tokenizer(text, as_text=False).run()


class _Tokenizer:
    def __init__(self, text: str, *, as_text: bool) -> None:
        self.text = text
        self.as_text = as_text
        self.at = 0
        self.tokens: list[Token] = []
        self.spaced = False
        self.brackets: list[str] = []
        self.matrices = 0

    def run(self) -> list[Token]:
        while self.at < len(self.text):
            match = _MASTER.match(self.text, self.at)
            if match is None:
                self._symbol_or_refuse(self.text[self.at])
                continue
            self.at = match.end()
            kind = match.lastgroup or ""
            lexeme = match.group()
            if kind == "space":
                self.spaced = True
                continue
            self._take(kind, lexeme)
        return self.tokens

    def _symbol_or_refuse(self, character: str) -> None:
        self.at += 1
        if character in CURRENCY_SIGNS:
            self.spaced = True
        elif character.isalpha():
            self._add(SYMBOL, character)
        else:
            raise Unread("a character outside mathematics")

    def _add(self, kind: str, text: str) -> None:
        self.tokens.append(Token(kind, text, self.spaced))
        self.spaced = False

    def _take(self, kind: str, lexeme: str) -> None:
        if kind == "number":
            self._take_number(lexeme)
        elif kind == "word":
            self._take_word(lexeme)
        elif kind == "command":
            self._take_command(lexeme[1:])
        elif kind == "environment":
            self._take_environment(lexeme)
        elif kind == "rowbreak":
            self._separator("\\\\")
        elif kind == "han":
            self._add(CONNECTOR if lexeme in CONNECTORS else TEXT, lexeme)
        else:
            self._take_sign(lexeme)

    def _take_number(self, lexeme: str) -> None:
        if "," in lexeme and self.brackets and self.brackets[-1] in "([\\{":
            # (1,234) is a pair: a comma in brackets separates, so only the digits before it are taken
            first = lexeme.split(",", 1)[0]
            self.at -= len(lexeme) - len(first)
            lexeme = first
        self._add(NUMBER, lexeme.replace(",", "").replace(" ", "").replace("'", ""))

    def _take_sign(self, lexeme: str) -> None:
        if lexeme in ("(", "[", r"\{", "{"):
            self.brackets.append(lexeme)
        elif lexeme in (")", "]", r"\}", "}") and self.brackets:
            self.brackets.pop()
        if lexeme == "&":
            self._separator("&")
        elif lexeme in (r"\%", "%"):
            self._add(SIGN, "%")
        elif lexeme in (r"\&", r"\#", r"\_"):
            raise Unread("an escaped sign without a meaning")
        else:
            self._add(COMMAND if lexeme in DOTS else SIGN, {"**": "^"}.get(lexeme, lexeme))

    def _separator(self, sign: str) -> None:
        if self.matrices:
            self._add(SIGN, sign)
        else:
            self.spaced = True

    def _take_environment(self, lexeme: str) -> None:
        opening = lexeme.startswith(r"\begin")
        name = lexeme[lexeme.index("{") + 1 : -1].rstrip("*")
        if name not in MATRIX_ENVIRONMENTS:
            self.spaced = True
            return
        self.matrices += 1 if opening else -1
        if opening and name == "array" and (spec := _COLUMN_SPEC.match(self.text, self.at)):
            self.at = spec.end()
        # \left[ \begin{array} … \end{array} \right] is a pmatrix in other words; the parser drops the brackets
        self._add(BEGIN if opening else END, name)

    def _take_command(self, name: str) -> None:
        if name in SILENT_COMMANDS:
            self.spaced = True
        elif name in TEXT_COMMANDS:
            self._take_text(name)
        elif name in FACE_COMMANDS:
            self.spaced = True
        elif name == "mathbb":
            self._add(SYMBOL, "mathbb" + self._braced())
        elif name in FRACTION_COMMANDS:
            self._add(COMMAND, "frac")
        elif name in GREEK:
            self._add(SYMBOL, name.removeprefix("var"))
        elif name in CONSTANTS:
            self._add(CONSTANT, CONSTANTS[name])
        elif name in FUNCTIONS and name not in ("sqrt",):
            self._add(FUNCTION, FUNCTIONS[name])
        elif name in ("lbrace", "rbrace"):
            self._take_sign(r"\{" if name == "lbrace" else r"\}")
        elif name in ("lbrack", "rbrack"):
            self._take_sign("[" if name == "lbrack" else "]")
        elif name.startswith("quad") and len(name) == 5:
            # \quadx: a space command glued to the letter behind it
            self.spaced = True
            self._take_word(name[4:])
        else:
            self._add(COMMAND, name)

    def _braced(self) -> str:
        """The text of the brace group that starts here, or the next character."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        if self.at >= len(self.text):
            raise Unread("a command without its argument")
        if self.text[self.at] != "{":
            self.at += 1
            return self.text[self.at - 1]
        depth, start = 0, self.at + 1
        for position in range(self.at, len(self.text)):
            if self.text[position] == "{":
                depth += 1
            elif self.text[position] == "}":
                depth -= 1
                if depth == 0:
                    self.at = position + 1
                    return self.text[start:position]
        raise Unread("a brace without its partner")

    def _take_text(self, command: str) -> None:
        content = self._braced()
        bare = content.strip()
        if command in ("mathrm", "operatorname", "text") and bare in ("e", "i", "d", "\\pi"):
            self._add(CONSTANT if bare != "d" else SYMBOL, bare.lstrip("\\"))
        elif command in ("mathrm", "operatorname") and bare in FUNCTIONS:
            self._add(FUNCTION, FUNCTIONS[bare])
        else:
            inner = _Tokenizer(content, as_text=True)
            inner.spaced = True
            self.tokens += inner.run()
            self.spaced = True

    def _take_word(self, word: str) -> None:
        low = word.casefold()
        after_number = bool(self.tokens) and self.tokens[-1].kind == NUMBER
        if low in CONNECTORS:
            self._add(CONNECTOR, low)
        elif len(word) == 1 and word in OPTION_LETTERS and not after_number:
            self._add(CONSTANT if word == "e" else SYMBOL, word)
        elif self.as_text or low in SCALES or low in ("percent", "pct"):
            self._add(TEXT, low)
        elif len(word) == 1:
            self._add(CONSTANT if word in "ei" else SYMBOL, word)
        elif low in UNIT_RUNS and (after_number or self._behind_value()):
            self._add(TEXT, low)
        elif word in CONSTANTS:
            self._add(CONSTANT, CONSTANTS[word])
        elif word in FUNCTIONS:
            self._add(FUNCTION, FUNCTIONS[word])
        elif word in GREEK:
            self._add(SYMBOL, word)
        elif self._is_prose(word, low, after_number):
            self._add(TEXT, low)
        else:
            for letter in word:
                self._add(CONSTANT if letter in "ei" else SYMBOL, letter)

    def _behind_value(self) -> bool:
        """`25\\pi cm`, `9 square cm`: a unit may stand apart from what it measures."""
        return self.spaced and bool(self.tokens) and self.tokens[-1].kind in (TEXT, CONSTANT)

    def _is_prose(self, word: str, low: str, after_number: bool) -> bool:
        """A run of letters is a word, not a product: known units, long words, and short ones that stand apart."""
        if len(word) >= 3 and low in UNITS:
            return True
        if after_number and not self.spaced:
            return False
        return len(word) >= 4 or (len(word) == 3 and self.spaced and word.islower() and bool(_VOWEL.search(word)))
