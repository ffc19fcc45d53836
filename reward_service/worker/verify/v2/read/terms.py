"""The middle layer of the grammar: sums, products, units, powers and postfixes."""

from __future__ import annotations

from fractions import Fraction

from reward_service.worker.verify.v2.algebra.expressions import (
    MINUS_ONE,
    Add,
    Based,
    Call,
    Const,
    Degree,
    Expr,
    Mul,
    Num,
    Percent,
    PlusMinus,
    Pow,
    Quantity,
    Sym,
    Word,
    negated,
)
from reward_service.worker.verify.v2.read.atoms import AtomParser
from reward_service.worker.verify.v2.read.cursor import product_of
from reward_service.worker.verify.v2.read.tokens import (
    COMMAND,
    NUMBER,
    SIGN,
    SYMBOL,
    TEXT,
    Unread,
)
from reward_service.worker.verify.v2.tables import (
    DEGREE_WORDS,
    NOT_UNITS,
    PERCENT_WORDS,
    PRODUCT_SIGNS,
    QUOTIENT_SIGNS,
    SCALES,
    UNIT_LETTERS,
    UNITS,
)

MAX_UNIT_WORDS = 6


class TermParser(AtomParser):
    """Sums, products and powers over the atoms of atoms.py."""

    # ---- sums

    def sum(self) -> Expr:
        self.deeper()
        terms = [self._signed(first=True)]
        while self.is_sign("+", "-", "pm", "mp"):
            terms.append(self._signed(first=False))
        self.depth -= 1
        return terms[0] if len(terms) == 1 else Add(tuple(terms))

    def _signed(self, *, first: bool) -> Expr:
        negative, plus_minus, flipped, signs = False, False, False, 0
        while self.is_sign("+", "-", "pm", "mp"):
            sign = self.take().text
            negative ^= sign == "-"
            plus_minus |= sign in ("pm", "mp")
            flipped |= sign == "mp"
            signs += 1
        if signs > (1 if first else 2):
            raise Unread("too many signs")
        term = self.product()
        if negative:
            term = negated(term)
        return PlusMinus(term, flipped) if plus_minus else term

    # ---- products

    def product(self) -> Expr:
        factors = [self.factor()]
        while True:
            token = self.peek()
            if token.kind in (SIGN, COMMAND) and token.text in PRODUCT_SIGNS:
                self.take()
                factors.append(self.signed_factor())
            elif token.kind in (SIGN, COMMAND) and token.text in QUOTIENT_SIGNS:
                self.take()
                factors.append(Pow(self.signed_factor(), MINUS_ONE))
            elif token.text in ("bmod", "mod") and token.kind == COMMAND:
                self.take()
                factors = [Call("mod", (product_of(factors), self.factor()))]
            elif token.kind == TEXT:
                factors = [self._with_unit(product_of(factors))]
            elif self.starts_factor(token):
                self.refuse_number_behind(token)
                factors.append(self.factor())
            else:
                return product_of(factors)

    def signed_factor(self) -> Expr:
        if self.is_sign("-", "+"):
            minus = self.take().text == "-"
            body = self.factor()
            return negated(body) if minus else body
        return self.factor()

    def _with_unit(self, body: Expr) -> Expr:
        words: list[str] = []
        while True:
            token = self.peek()
            if token.kind == TEXT:
                word = self.take().text
                if word in PERCENT_WORDS and not words:
                    body = Percent(body)
                elif word in SCALES and not words:
                    body = Mul((body, Num(Fraction(SCALES[word]))))
                elif word in DEGREE_WORDS and not words:
                    body = Degree(body)
                elif word in NOT_UNITS:
                    raise Unread("a word that changes the value")
                else:
                    words.append(UNITS.get(word, word.removesuffix("s") if len(word) > 3 else word))
            elif words and self.is_sign("^"):
                self.take()
                words.append("^" + self._exponent_digits())
            elif words and self.is_sign("/") and (self.peek(1).kind == TEXT or self.peek(1).text in UNIT_LETTERS):
                self.take()
                words.append("/")
                if self.peek().kind != TEXT:
                    words.append(UNITS[self.take().text])
            elif isinstance(body, Degree) and token.kind == SYMBOL and token.text in ("C", "F"):
                self.take()
            else:
                break
        if len(words) > MAX_UNIT_WORDS:
            raise Unread("more than a unit")
        if words and isinstance(body, (Sym, Word)):
            # "A triangle": a variable has no unit, these are words
            raise Unread("words behind a letter")
        return Quantity(body, " ".join(words)) if words else body

    def _exponent_digits(self) -> str:
        braced = self.is_sign("{")
        if braced:
            self.take()
        minus = "-" if self.is_sign("-") and self.take() else ""
        token = self.take()
        if token.kind != NUMBER or (braced and self.expect("}") != "}"):
            raise Unread("a unit with a strange exponent")
        return minus + token.text

    # ---- powers and postfixes

    def factor(self) -> Expr:
        return self._postfixes(self.atom())

    def _postfixes(self, body: Expr) -> Expr:
        while True:
            if self.is_sign("^"):
                self.take()
                body = self._power_of(body)
            elif self.is_sign("!"):
                self.take()
                if self.is_sign("!"):
                    raise Unread("a double factorial")
                body = Call("factorial", (body,))
            elif self.is_sign("%"):
                self.take()
                body = Percent(body)
            elif self.is_sign("_"):
                body = self._subscripted(body)
            elif self.is_sign("circ", "degree"):
                self.take()
                body = Degree(body)
            elif self.is_sign("'") and isinstance(body, Sym):
                self.take()
                body = Sym(body.name + "'")
            else:
                return body

    def _power_of(self, body: Expr) -> Expr:
        if self.is_sign("circ", "degree"):
            self.take()
            if self.peek().text in ("C", "F") and not self.peek(1).kind:
                self.take()
            return Degree(body)
        if self.is_sign("{") and self.peek(1).text in ("circ", "prime") and self.peek(2).text == "}":
            mark = self.peek(1).text
            self.at += 3
            return (
                Degree(body)
                if mark == "circ"
                else Sym(body.name + "'")
                if isinstance(body, Sym)
                else _unread("a prime")
            )
        if self.is_sign("prime") and isinstance(body, Sym):
            self.take()
            return Sym(body.name + "'")
        exponent = self.exponent()
        return Pow(body, exponent)

    def exponent(self) -> Expr:
        """The exponent, with towers read from the right and a sign allowed."""
        if self.is_sign("-", "+"):
            minus = self.take().text == "-"
            body = self.exponent()
            return negated(body) if minus else body
        self.deeper()
        body = self.atom()
        while self.is_sign("!"):
            self.take()
            body = Call("factorial", (body,))
        if self.is_sign("^"):
            self.take()
            body = Pow(body, self.exponent())
        self.depth -= 1
        return body

    def _subscripted(self, body: Expr) -> Expr:
        self.take()
        label = self._label()
        if isinstance(body, Sym):
            return Sym(f"{body.name}_{label}")
        if isinstance(body, Const) and body.name in ("e", "i"):
            return Sym(f"{body.name}_{label}")
        if isinstance(body, Num) and body.places is None and label.isdigit() and 2 <= int(label[:4]) <= 36:
            return Based(str(body.value), int(label))
        raise Unread("a subscript on something strange")

    def _label(self) -> str:
        if not self.is_sign("{"):
            return self.take().text
        self.take()
        parts: list[str] = []
        while not self.is_sign("}"):
            if not self.peek().kind or self.is_sign("{"):
                raise Unread("a strange subscript")
            parts.append(self.take().text)
        self.take()
        return "".join(parts)


def _unread(why: str) -> Expr:
    raise Unread(why)
