"""The lowest layer of the grammar: numbers, symbols, functions, LaTeX commands."""

from __future__ import annotations

from fractions import Fraction

from reward_service.worker.verify.v2.algebra.expressions import (
    MINUS_ONE,
    Call,
    Const,
    Dots,
    Expr,
    Fold,
    Mul,
    Num,
    Opaque,
    Pow,
    Relation,
    Seq,
    SetOp,
    Sym,
    Word,
)
from reward_service.worker.verify.v2.read.cursor import product_of
from reward_service.worker.verify.v2.read.numerals import NumeralParser
from reward_service.worker.verify.v2.read.tokens import (
    COMMAND,
    CONSTANT,
    FUNCTION,
    NUMBER,
    SYMBOL,
    TEXT,
    Unread,
)
from reward_service.worker.verify.v2.tables import (
    BINOMIAL_COMMANDS,
    DOTS,
    FUNCTION_LETTERS,
    INVERSES,
)


class AtomParser(NumeralParser):
    """What stands for itself, and what takes arguments."""

    # ---- atoms

    def atom(self) -> Expr:
        self.deeper()
        body = self._atom()
        self.depth -= 1
        return body

    def _atom(self) -> Expr:
        token = self.peek()
        if token.kind == NUMBER:
            return self.number()
        if token.kind == SYMBOL:
            return self._symbol()
        if token.kind == CONSTANT:
            return Const(self.take().text)
        if token.kind == FUNCTION:
            return self._function()
        if token.kind == TEXT:
            return self._words()
        if token.kind == COMMAND and token.text not in ("{", "}"):
            return self._command()
        return self.bracketed()

    def _words(self) -> Expr:
        words: list[str] = []
        while self.peek().kind == TEXT:
            words.append(self.take().text)
        return Word(" ".join(words))

    def _symbol(self) -> Expr:
        name = self.take().text
        if name == "mathbbR":
            return Const("reals")
        if name in FUNCTION_LETTERS:
            name += self._derived()
        argument = self.peek(1)
        applied = self.is_sign("(") and not self.peek().spaced and self.peek(2).text == ")"
        if applied and name[0] in FUNCTION_LETTERS and argument.kind in (SYMBOL, NUMBER, CONSTANT):
            self.take()
            inside = self.atom()
            self.expect(")")
            return Call(name, (inside,))
        if name == "P" and self.is_sign("("):
            start = self.at
            event = self.bracketed()
            if isinstance(event, (Relation, Seq, SetOp)):
                return Call(name, (event,))
            self.at = start
        return Sym(name)

    def _derived(self) -> str:
        """Primes, and the -1 of an inverse function, between the letter of a function and its argument."""
        primes = 0
        while self.peek(primes).text == "'":
            primes += 1
        inverse = [self.peek(ahead).text for ahead in range(6)] == ["^", "{", "-", "1", "}", "("]
        if primes and self.peek(primes).text == "(":
            self.at += primes
            return "'" * primes
        if inverse:
            self.at += 5
            return "^-1"
        return ""

    def _function(self) -> Expr:
        name = self.take().text
        if name in ("sqrt", "cbrt"):
            return Call("root", (self.atom(), Num(Fraction(2 if name == "sqrt" else 3))))
        base = None
        if name == "log" and self.is_sign("_"):
            self.take()
            base = self.atom()
        power: Expr | None = None
        if self.is_sign("^"):
            self.take()
            power = self.exponent()
        args = self._arguments()
        if name == "exp" and len(args) == 1:
            return Pow(Const("e"), args[0])
        if power == MINUS_ONE and name in INVERSES:
            return Call(INVERSES[name], args)
        if name in ("log", "lg"):
            args = (args[0], base or Num(Fraction(10)))
            name = "log"
        call = Call(name, args)
        return Pow(call, power) if power is not None else call

    def _arguments(self) -> tuple[Expr, ...]:
        if self.is_sign("(", "{"):
            opener = self.take().text
            closer = ")" if opener == "(" else "}"
            args = [self.sum()]
            while self.is_sign(",") and opener == "(":
                self.take()
                args.append(self.sum())
            self.expect(closer)
            return tuple(args)
        factors = [self.signed_factor()]
        while self.starts_factor(self.peek()) and self.peek().kind != FUNCTION and not self.is_sign("("):
            self.refuse_number_behind(self.peek())
            factors.append(self.factor())
        return (product_of(factors),)

    # ---- commands

    def _command(self) -> Expr:
        name = self.take().text
        if name == "frac":
            return self._fraction()
        if name in ("sqrt", "usqrt"):
            return self._root()
        if name in BINOMIAL_COMMANDS:
            return Call("binomial", (self.argument(), self.argument()))
        if name in ("sum", "prod"):
            return self._fold(name)
        if name in ("emptyset", "varnothing"):
            return Const("emptyset")
        if name in DOTS:
            return Dots()
        if name in ("lfloor", "lceil", "lvert"):
            body = self.sum()
            self.expect({"lfloor": "rfloor", "lceil": "rceil", "lvert": "rvert"}[name])
            return Call({"lfloor": "floor", "lceil": "ceil", "lvert": "abs"}[name], (body,))
        if name in ("overline", "bar", "hat", "tilde"):
            return Call(name, (self.argument(),))
        if name == "lim":
            return self._limit()
        if name in ("int", "iint", "oint"):
            return self._integral(name)
        if name in ("angle", "triangle", "measuredangle"):
            return Call("named", (Word(name), self.product()))
        self.at -= 1
        return self.bracketed()

    def argument(self) -> Expr:
        if self.is_sign("{"):
            self.take()
            body = self.statement()
            self.expect("}")
            return body
        self.split_digits()
        return self.atom()

    def _fraction(self) -> Expr:
        above = self.argument()
        below = self.argument()
        if above == Sym("d") or (isinstance(above, Mul) and above.factors[0] == Sym("d") and len(above.factors) == 2):
            return Call("derivative", (above, below))
        if isinstance(above, Num) and isinstance(below, Num) and below.value and above.places is below.places is None:
            return Num(above.value / below.value)
        return Mul((above, Pow(below, MINUS_ONE)))

    def _root(self) -> Expr:
        index: Expr = Num(Fraction(2))
        if self.is_sign("["):
            self.take()
            index = self.sum()
            self.expect("]")
        elif self.peek().kind == NUMBER and len(self.peek().text) > 1:
            # \sqrt12 is set as a root over the 1 alone, and meant as a root of 12: refused rather than guessed
            raise Unread("a root of several digits without braces")
        return Call("root", (self.argument(), index))

    def _fold(self, op: str) -> Expr:
        self.expect("_")
        self.expect("{")
        index = self.take()
        self.expect("=")
        low = self.sum()
        self.expect("}")
        self.expect("^")
        high = self.argument()
        if index.kind not in (SYMBOL, CONSTANT):
            raise Unread("a sum without an index")
        return Fold(op, index.text, low, high, self.product())

    def _limit(self) -> Expr:
        self.expect("_")
        self.expect("{")
        variable = self.sum()
        self.expect("to", "rightarrow")
        point = self.sum()
        self.expect("}")
        return Opaque("lim", (variable, point, self.product()))

    def _integral(self, name: str) -> Expr:
        bounds: list[Expr] = []
        while self.is_sign("_", "^"):
            self.take()
            bounds.append(self.argument())
        return Opaque(name, (*bounds, self.sum()))
