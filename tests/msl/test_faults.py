"""The kernels of tools/faults: right as they are, and told of with a fault; the record of all faults."""

from __future__ import annotations

import numpy as np
import pytest

from metal_ops.metal.check_launch import Checks
from tests.processes import ROOT
from tools.faults import plant, trial
from tools.faults.__main__ import RECORD, SEED, recorded, row_of, table

from .check_cases import ARGUMENTS
from .fault_kernels import KERNELS
from .shaders import library

pytestmark = pytest.mark.compiler
TEXTS = {name: text for name, (text, _) in KERNELS.items()}
FAULTS = plant.planted(TEXTS, SEED)
# A few of each kind for every run; `python -m tools.faults` tries all.
SAMPLE = [
    number
    for kind in dict.fromkeys(fault.kind for fault in FAULTS)
    for number in [n for n, fault in enumerate(FAULTS) if fault.kind == kind][1::9][:3]
]


def _right(name: str) -> np.ndarray:
    return KERNELS[name][1](trial.numbers().astype(float))


@pytest.fixture(scope="module")
def shader():
    bodies = (
        f"kernel void k{n}{ARGUMENTS} {{\n{text}}}\n" for n, text in enumerate(TEXTS.values())
    )
    return library("".join(bodies), checked=True, checks=True)


@pytest.mark.parametrize("order", ["plain", "reverse", "one-simdgroup", "random"])
@pytest.mark.parametrize("name", KERNELS)
def test_nothing_is_told_of_right_kernels(name, order, shader):
    checks = Checks(schedule=order, seed=4)
    result, beyond = trial.launched(shader, f"k{list(KERNELS).index(name)}", checks)
    assert (checks.reports, beyond) == ([], "")
    np.testing.assert_array_equal(result, _right(name))


def test_a_sample_is_as_recorded():
    rows = recorded()
    chosen = [FAULTS[number] for number in SAMPLE]
    outcomes = trial.tried(chosen, ARGUMENTS, _right)
    assert [row_of(*each) for each in zip(chosen, outcomes, strict=True)] == [
        rows[n] for n in SAMPLE
    ]
    assert sum(outcome.at_its_line for outcome in outcomes) > len(SAMPLE) / 2


def test_the_record():
    """The record has this seed's faults; enough of them are told of at their lines, and the page has the same table."""
    rows = recorded()
    keys = ("kernel", "kind", "line", "was", "now")
    assert [[row[k] for k in keys] for row in rows] == [
        [getattr(f, k) for k in keys] for f in FAULTS
    ], "run `python -m tools.faults --record`"
    differ = [row for row in rows if row["differs"]]
    assert len(rows) >= 150 and len({row["kernel"] for row in rows}) == len(KERNELS) == 30
    assert sum(row["at_its_line"] for row in differ) >= 0.95 * len(differ)
    assert table(rows) in (ROOT / "docs/find-the-race.md").read_text()
    assert RECORD.exists()


def test_another_seed_draws_others():
    other = plant.planted(TEXTS, SEED + 1)
    assert other != FAULTS and plant.planted(TEXTS, SEED + 1) == other
    met = [fault for fault in FAULTS if fault.kind in ("no barrier", "no fence")]
    assert [fault for fault in other if fault.kind in ("no barrier", "no fence")] == met
