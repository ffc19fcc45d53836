"""The upper layer of the grammar: lists, relations, unions, brackets, matrices. It reads to the end or not at all."""

from __future__ import annotations

from reward_service.worker.types import TooLarge
from reward_service.worker.verify.v2.algebra.expressions import (
    MINUS_ONE,
    Bracket,
    Call,
    Const,
    Expr,
    Matrix,
    Mul,
    Opaque,
    Pow,
    Ratio,
    Relation,
    Seq,
    SetOp,
    Word,
)
from reward_service.worker.verify.v2.read.terms import TermParser
from reward_service.worker.verify.v2.read.tokens import BEGIN, COMMAND, CONNECTOR, END, SIGN, TEXT, Token, Unread
from reward_service.worker.verify.v2.tables import EMPTY_SET_WORDS, OR_WORDS, REAL_LINE_WORDS, RELATIONS, SET_SIGNS

MAX_TOKENS = 6000
MAX_ITEMS = 1500


def parse(tokens: list[Token]) -> Expr:
    """The tree of the tokens, all of them; Unread when there is none, TooLarge when nobody should try."""
    if len(tokens) > MAX_TOKENS:
        raise TooLarge("the expression has too many signs")
    parser = Parser(tokens)
    tree = parser.statement()
    if parser.at < len(parser.tokens):
        raise Unread("more stands behind the expression")
    return tree


def _grouped(items: list[Expr], ends: list[int]) -> list[Expr]:
    """`1,2;3,4`: pairs, when the semicolons cut a list into equal parts of two or more."""
    size = ends[0]
    even = size > 1 and ends == list(range(size, len(items) + 1, size))
    if not even or any(isinstance(item, Relation) for item in items):
        return items
    return [Bracket("(", ")", tuple(items[start : start + size])) for start in range(0, len(items), size)]


class Parser(TermParser):
    """Lists and relations over the terms of terms.py."""

    def statement(self) -> Expr:
        outermost = self.at == 0
        items = [self.relation()]
        joints: set[str] = set()
        ends_of_groups: list[int] = []
        while True:
            semicolon = self.is_sign(";")
            joint = self._separator()
            if not joint:
                break
            if semicolon:
                ends_of_groups.append(len(items))
            joints.add(joint)
            items.append(self.relation())
            if len(items) > MAX_ITEMS:
                # outside brackets a value that is said again is no further value
                items = list(dict.fromkeys(items)) if outermost else items
                if len(items) > MAX_ITEMS // 2:
                    raise TooLarge("the list is too long")
        if len(items) == 1:
            return items[0]
        if outermost and ends_of_groups and joints == {","}:
            items = _grouped(items, [*ends_of_groups, len(items)])
        # "19, 46 and 82" is a plain list: only a statement joined by one word throughout keeps that word
        return Seq(tuple(items), joints.pop() if len(joints) == 1 else ",")

    def _separator(self) -> str:
        joint = ""
        if self.is_sign(",", ";"):
            if self.peek(1).text == "\\\\" or self.peek(1).kind == END:
                return ""
            self.take()
            joint = ","
        while self.peek().kind == CONNECTOR or self.is_sign("lor", "vee", "land", "wedge"):
            word = self.take().text
            joint = "or" if word in OR_WORDS or word in ("lor", "vee") else "and"
            if self.peek().kind == CONNECTOR:
                raise Unread("two connectors in a row")
        return joint

    def relation(self) -> Expr:
        parts = [self.ratio()]
        ops: list[str] = []
        while True:
            token = self.peek()
            negated_in = token.text == "not"
            if negated_in:
                token = self.peek(1)
            if token.kind not in (SIGN, COMMAND) or token.text not in RELATIONS:
                break
            self.at += 2 if negated_in else 1
            op = RELATIONS[token.text]
            if negated_in:
                op = {"=": "!=", "in": "notin"}.get(op, "")
                if not op:
                    raise Unread("a negated relation")
            ops.append(op)
            parts.append(self.ratio())
        if self.is_sign("pmod") and ops == ["="]:
            self.take()
            return Opaque("congruence", (*parts, self.argument()))
        return Relation(tuple(ops), tuple(parts)) if ops else parts[0]

    def ratio(self) -> Expr:
        parts = [self.union()]
        while self.is_sign(":", "colon") and not self.reading_sets:
            self.take()
            parts.append(self.union())
        return Ratio(tuple(parts)) if len(parts) > 1 else parts[0]

    def union(self) -> Expr:
        parts = [self.sum()]
        ops: set[str] = set()
        while self.peek().kind == COMMAND and self.peek().text in SET_SIGNS:
            ops.add(SET_SIGNS[self.take().text])
            parts.append(self.sum())
        if len(ops) > 1 or (ops == {"difference"} and len(parts) > 2):
            raise Unread("set operations of several kinds without brackets")
        return SetOp(ops.pop(), tuple(parts)) if ops else parts[0]

    def _words(self) -> Expr:
        words: list[str] = []
        while self.peek().kind == TEXT:
            words.append(self.take().text)
        text = " ".join(words)
        if text in EMPTY_SET_WORDS:
            return Const("emptyset")
        return Const("reals") if text in REAL_LINE_WORDS else Word(text)

    # ---- brackets

    def bracketed(self) -> Expr:
        token = self.take()
        if token.kind == BEGIN:
            return self._matrix(token.text)
        if token.kind not in (SIGN, COMMAND):
            raise Unread("an expression is missing")
        if token.text == "|":
            return self._bars()
        if token.text in ("(", "[", "{"):
            return self._group(token.text)
        if token.text == r"\{":
            return self._set()
        if token.text == "langle":
            items = self._items()
            self.expect("rangle")
            return Bracket("(", ")", items)
        if token.text == "]":
            self.reversed = True
            items = self._items()
            self.reversed = False
            closer = self.expect("[", "]")
            return Bracket("(", ")" if closer == "[" else "]", items)
        raise Unread("a sign without a rule")

    def _items(self) -> tuple[Expr, ...]:
        body = self.statement()
        return body.items if isinstance(body, Seq) else (body,)

    def _group(self, opener: str) -> Expr:
        bars, self.bars = self.bars, 0
        sets, self.reading_sets = self.reading_sets, 0
        if opener == "[" and self.peek().kind == BEGIN:
            matrix = self.sum()
            self.expect("]")
            self.bars, self.reading_sets = bars, sets
            return matrix
        body = self.statement()
        if opener in "({" and self.is_sign("over", "choose"):
            body = self._infix(body)
        closer = self.expect(*({"(": (")", "]"), "[": ("]", ")", "["), "{": ("}",)}[opener]))
        self.bars, self.reading_sets = bars, sets
        if isinstance(body, Seq):
            if opener == "[" and closer == "[":
                closer = ")"
            return Bracket(opener, closer, body.items)
        if (opener, closer) not in (("(", ")"), ("[", "]"), ("{", "}")):
            raise Unread("brackets that do not match")
        return body

    def _infix(self, above: Expr) -> Expr:
        """`{1 \\over 2}`, `{5 \\choose 2}`."""
        command = self.take().text
        below = self.statement()
        return Mul((above, Pow(below, MINUS_ONE))) if command == "over" else Call("binomial", (above, below))

    def _set(self) -> Expr:
        if self.is_sign(r"\}"):
            self.take()
            return Const("emptyset")
        if self.peek().kind == BEGIN:
            return self._system()
        self.reading_sets += 1
        body = self.statement()
        if self.is_sign("mid", "|", ":", "colon"):
            self.take()
            body = self.statement()
            self.expect(r"\}")
            self.reading_sets -= 1
            return body
        self.expect(r"\}")
        self.reading_sets -= 1
        return Bracket("{", "}", body.items if isinstance(body, Seq) else (body,))

    def _system(self) -> Expr:
        """A brace before an array: equations that hold together. Its right side has no brace."""
        system = self.sum()
        if self.is_sign(r"\}"):
            self.take()
        return system

    def _bars(self) -> Expr:
        self.bars += 1
        body = self.sum()
        self.expect("|")
        self.bars -= 1
        return Call("abs", (body,))

    def _matrix(self, kind: str) -> Expr:
        rows: list[tuple[Expr, ...]] = []
        row: list[Expr] = []
        while True:
            if self.peek().kind == END:
                self.take()
                if row:
                    rows.append(tuple(row))
                break
            row.append(self.statement())
            if self.is_sign(",", ".", ";"):
                self.take()
            if self.is_sign("&"):
                self.take()
            elif self.is_sign("\\\\"):
                self.take()
                rows.append(tuple(row))
                row = []
            elif self.peek().kind != END:
                raise Unread("a matrix cell that does not end")
            if len(rows) > MAX_ITEMS:
                raise TooLarge("the matrix is too large")
        if not rows or len({len(cells) for cells in rows}) != 1:
            raise Unread("rows of different lengths")
        cells = [cells[0] for cells in rows]
        if kind in ("array", "cases") and len(rows[0]) == 1 and all(isinstance(cell, Relation) for cell in cells):
            return Seq(tuple(cells), "and")
        return Matrix(kind if kind in ("vmatrix", "cases") else "matrix", tuple(rows))
