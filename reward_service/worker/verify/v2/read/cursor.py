"""The cursor that the grammar's three layers share: atoms.py, terms.py and parser.py."""

from __future__ import annotations

from reward_service.worker.types import TooLarge
from reward_service.worker.verify.v2.algebra.expressions import Expr, Mul
from reward_service.worker.verify.v2.read.tokens import (
    BEGIN,
    COMMAND,
    CONSTANT,
    FUNCTION,
    NUMBER,
    SIGN,
    SYMBOL,
    TEXT,
    Token,
    Unread,
)
from reward_service.worker.verify.v2.tables import BINOMIAL_COMMANDS

MAX_DEPTH = 70
_END = Token("", "", False)
_PREFIX_COMMANDS = (
    frozenset(
        [
            "frac",
            "sqrt",
            "usqrt",
            "binom",
            "sum",
            "prod",
            "int",
            "lim",
            "int",
            "iint",
            "oint",
            "overline",
            "bar",
            "hat",
            "tilde",
            "lvert",
            "lfloor",
            "lceil",
            "langle",
            "angle",
            "triangle",
            "emptyset",
            "varnothing",
            "overset",
            "underset",
            "measuredangle",
            "nexists",
            "partial",
            "nabla",
        ]
    )
    | BINOMIAL_COMMANDS
)


class Cursor:
    """A place in a list of tokens, and how deep the grammar has gone."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0
        self.reading_sets = 0
        self.reversed = False

    def statement(self) -> Expr:
        """A list, a relation or a single expression: parser.py says how."""
        raise NotImplementedError

    def sum(self) -> Expr:
        """Terms with signs between them: terms.py says how."""
        raise NotImplementedError

    def product(self) -> Expr:
        """Factors, written out or side by side: terms.py says how."""
        raise NotImplementedError

    def factor(self) -> Expr:
        """An atom with its power and postfixes: terms.py says how."""
        raise NotImplementedError

    def exponent(self) -> Expr:
        """What stands behind a caret: terms.py says how."""
        raise NotImplementedError

    def signed_factor(self) -> Expr:
        """A factor that may carry a sign: terms.py says how."""
        raise NotImplementedError

    def bracketed(self) -> Expr:
        """Whatever begins with a bracket: parser.py says how."""
        raise NotImplementedError

    def peek(self, ahead: int = 0) -> Token:
        position = self.at + ahead
        return self.tokens[position] if position < len(self.tokens) else _END

    def take(self) -> Token:
        token = self.peek()
        self.at += 1
        return token

    def is_sign(self, *texts: str) -> bool:
        token = self.peek()
        return token.kind in (SIGN, COMMAND) and token.text in texts

    def expect(self, *texts: str) -> str:
        if not self.is_sign(*texts):
            raise Unread("something is missing")
        return self.take().text

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLarge("the expression is nested too deeply")

    def starts_factor(self, token: Token) -> bool:
        if token.kind in (NUMBER, SYMBOL, CONSTANT, FUNCTION, BEGIN):
            return True
        if token.kind == SIGN:
            return (
                token.text in ("(", "{")
                or (token.text == "[" and not self.reversed)
                or (token.text == "|" and not self.bars and not self.reading_sets)
            )
        return token.kind == COMMAND and token.text in _PREFIX_COMMANDS

    def refuse_number_behind(self, token: Token) -> None:
        """`1 2` and `x 2` are no products that anybody writes: the text means something else."""
        before = self.peek(-1)
        if token.kind == NUMBER and before.kind in (NUMBER, SYMBOL, CONSTANT, TEXT):
            raise Unread("a number right behind another value")


def product_of(factors: list[Expr]) -> Expr:
    """One factor as itself, several as a product."""
    return factors[0] if len(factors) == 1 else Mul(tuple(factors))
