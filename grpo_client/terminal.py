"""Text for a terminal, in plain columns."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    """Text whose control characters are spelt out: an escape sequence of a model must not reach a terminal."""
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)


def one_line(text: str) -> str:
    """The same on one line."""
    return printable(text).replace("\n", "\\n")


def columns(rows: Sequence[Sequence[str]], *, indent: str = "  ") -> list[str]:
    """Rows as lines, each column as wide as its widest cell but the last."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)] if rows else []
    return [
        (indent + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])).rstrip()
        for row in rows
    ]
