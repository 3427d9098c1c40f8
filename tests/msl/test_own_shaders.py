"""The shader functions that `make test-checks` reaches, as its last whole run has recorded them."""

from __future__ import annotations

import pytest

from tools.checks import functions

pytestmark = pytest.mark.compiler


def test_every_function_is_reached_or_named():
    """A new function needs a call in tools/checks, or stands among those that are left."""
    rows = functions.recorded()
    built = {f for library in functions.LIBRARIES for f in functions.of_each(library)}
    if not built:
        pytest.skip("built with METAL_OPS_TARGETS=all, which leaves no descriptions of shaders")
    named = {(row["file"], name) for row in rows for name in row["reached"] + row["left"]}
    assert named == built, "run `python -m tools.checks --record`"
    assert not {(row["file"], name) for row in rows for name in {*row["reached"]} & {*row["left"]}}
    left = sum(len(row["left"]) for row in rows)
    assert left <= functions.MOST_LEFT * len(built)


@pytest.mark.parametrize(
    "kernel, function",
    [
        ("add_float_11", "add_T_N"),
        ("gather_rows_many_1_long", "gather_rows_many_N_T"),
        ("fft_blocks", "fft_blocks"),
        ("copy_1_rows_-1", "copy_N_rows_N"),
    ],
)
def test_instances_of_one_template_are_one_function(kernel, function):
    assert functions.function_of(kernel) == function
