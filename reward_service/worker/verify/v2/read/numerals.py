"""Numbers as they are written: decimals, repeating decimals, mixed numbers, the digits that LaTeX takes one by one."""

from __future__ import annotations

from fractions import Fraction

from reward_service.worker.verify.v2.algebra.expressions import Expr, Mul, Num, Pow
from reward_service.worker.verify.v2.algebra.numbers import read_number, repeating_decimal
from reward_service.worker.verify.v2.read.cursor import Cursor
from reward_service.worker.verify.v2.read.tokens import COMMAND, NUMBER, Token, Unread
from reward_service.worker.verify.v2.tables import DOTS


class NumeralParser(Cursor):
    """What begins with a digit."""

    def number(self) -> Expr:
        token = self.take()
        if "." in token.text and "e" not in token.text.lower():
            repeated = self._repeated_digits(token.text)
            if repeated:
                return repeating_decimal(token.text, repeated)
            if token.text.endswith("."):
                raise Unread("a number that ends in its point")
        mantissa, _, power = token.text.lower().partition("e")
        if 5 <= len(power) <= 12:
            # a power of ten beyond all digits: left unworked, for sizes.py to look at
            return Mul((read_number(mantissa), Pow(Num(Fraction(10)), Num(Fraction(int(power))))))
        number = read_number(token.text)
        return self._mixed(number) if number.places is None and number.value.denominator == 1 else number

    def _repeated_digits(self, written: str) -> str:
        """The digits under \\overline{…} or in (…) right behind a decimal, and `0.333…` with its dots."""
        if (
            self.is_sign("overline", "bar", "dot")
            and self.peek(1).text == "{"
            and self.peek(2).kind == NUMBER
            and self.peek(3).text == "}"
        ):
            self.at += 4
            return self.peek(-2).text
        if self.is_sign("(") and written.endswith(".") and self.peek(1).kind == NUMBER and self.peek(2).text == ")":
            # 0.(3) can only be a period; 1.5(2) is a product as well, and is read as one
            self.at += 3
            return self.peek(-2).text
        if self.peek().kind == COMMAND and self.peek().text in DOTS:
            decimals = written.partition(".")[2]
            if len(decimals) >= 3 and len(set(decimals[-3:])) == 1:
                self.take()
                return decimals[-1]
        return ""

    def _mixed(self, whole: Num) -> Expr:
        """`2\\frac{1}{2}`, `2 1/4`: an integer and a proper fraction make one number."""
        start = self.at
        numbers = self._proper_fraction()
        if numbers is None:
            self.at = start
            return whole
        above, below = numbers
        if not 0 <= above < below:
            raise Unread("a mixed number with an improper fraction")
        return Num(whole.value + Fraction(above, below))

    def _proper_fraction(self) -> tuple[int, int] | None:
        if self.is_sign("frac"):
            self.take()
            parts = [self._small_integer(), self._small_integer()]
            if parts[0] is None or parts[1] is None:
                return None
            return parts[0], parts[1]
        above, slash, below = self.peek(), self.peek(1), self.peek(2)
        is_fraction = above.kind == NUMBER and above.spaced and slash.text == "/" and below.kind == NUMBER
        if is_fraction and above.text.isdigit() and below.text.isdigit() and len(above.text + below.text) < 40:
            self.at += 3
            return int(above.text), int(below.text)
        return None

    def _small_integer(self) -> int | None:
        """A braced integer, or a single digit of a braceless `\\frac12`."""
        token = self.peek()
        if token.kind == NUMBER and token.text.isdigit():
            self.split_digits()
            return int(self.take().text)
        if self.is_sign("{") and self.peek(1).kind == NUMBER and self.peek(2).text == "}":
            text = self.peek(1).text
            self.at += 3
            return int(text) if text.isdigit() and len(text) < 40 else None
        return None

    def split_digits(self) -> None:
        """LaTeX takes one digit as an argument: \\frac34i is three quarters of i."""
        token = self.peek()
        if token.kind == NUMBER and len(token.text) > 1 and token.text.isdigit():
            self.tokens = list(self.tokens)
            self.tokens[self.at : self.at + 1] = [
                Token(NUMBER, token.text[0], token.spaced),
                Token(NUMBER, token.text[1:], False),
            ]
