"""Unions are brought to one form before they are compared: overlaps, ends that touch, intervals within others."""

from __future__ import annotations

import pytest

from tests.service.worker.verify_v2.test_equality import is_paid


@pytest.mark.parametrize(
    ("gold", "union"),
    [
        ("[0,10]", r"[0,10]\cup[1,2]\cup[5,6]\cup[7,8]"),
        ("[0,10]", r"[5,6]\cup[1,2]\cup[0,10]"),
        ("(0,10)", r"(0,10)\cup(1,2)\cup(3,10)"),
        ("[0,4]", r"[0,2)\cup[2,3]\cup(1,4]"),
        ("[0,4]", r"[0,2]\cup(2,4]"),
        ("[0,4]", r"[0,4)\cup(0,4]"),
        (r"(-\infty,5]", r"(-\infty,3)\cup[1,5]\cup(2,4)"),
        (r"(-\infty,1)\cup(2,\infty)", r"(2,\infty)\cup(-\infty,0]\cup(-1,1)"),
    ],
)
def test_a_union_is_equal_to_its_shortest_form(gold: str, union: str) -> None:
    assert is_paid(gold, rf"\boxed{{{union}}}")
    assert is_paid(union, rf"\boxed{{{gold}}}")


@pytest.mark.parametrize(
    ("gold", "union"),
    [
        ("[0,10]", r"[0,9]\cup[1,2]\cup[5,6]"),
        ("[0,4]", r"[0,2)\cup(2,4]"),
        ("[0,4]", r"[0,4)\cup(0,4)"),
        ("[0,6]", r"[0,2]\cup[3,6]"),
        ("[0,10]", r"[0,10]\cup[11,12]"),
    ],
)
def test_a_union_with_a_hole_or_another_end_is_another_set(gold: str, union: str) -> None:
    assert not is_paid(gold, rf"\boxed{{{union}}}")
    assert not is_paid(union, rf"\boxed{{{gold}}}")
