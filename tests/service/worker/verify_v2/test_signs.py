"""Plus-minus signs: free of one another, unless an upper and a lower sign tie them."""

from __future__ import annotations

import pytest

from tests.service.worker.verify_v2.test_equality import is_paid


@pytest.mark.parametrize(
    ("signs", "values"),
    [
        (r"5\pm 1", "4, 6"),
        (r"5\mp 1", "4, 6"),
        (r"\pm 10\pm 1", "11, 9, -9, -11"),
        (r"5\pm 1\mp 3", "3, 7"),
        (r"5\mp 1\pm 3", "7, 3"),
        (r"\pm\sqrt{4}\mp 1", "1, -1"),
    ],
)
def test_an_expression_with_signs_is_all_of_its_values_and_no_others(signs: str, values: str) -> None:
    assert is_paid(values, rf"\boxed{{{signs}}}")
    assert is_paid(signs, rf"\boxed{{{values}}}")
    assert not is_paid(signs, rf"\boxed{{{values}, 100}}")
    assert not is_paid(signs, rf"\boxed{{{values.rpartition(',')[0]}}}")


@pytest.mark.parametrize(("signs", "free"), [(r"5\pm 1\mp 3", "9, 3, 7, 1"), (r"\pm 10\pm 1", "11, -11")])
def test_tied_signs_are_not_free_and_free_ones_not_tied(signs: str, free: str) -> None:
    assert not is_paid(signs, rf"\boxed{{{free}}}")
