"""The CPU's tests of the hash encoding once more, on the device: values, derivatives, bad arguments, threads."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import cases, test_hash_encode, test_hash_encode_gradients, test_hash_encode_invalid
from tests.metal_kernels.on_device import again
from tests.metal_kernels.on_device.test_hash_encode import ATOMIC_SLACK

OPS = tuple(test_hash_encode.RAW_NAMES.values())
# Arguments that are refused before an op is made.
REFUSED = (
    *("test_public_function", "test_raw_ops", "test_raw_ops_inputs_of_derivatives"),
    "test_mixed_dtypes_are_refused",
)
guard = again.guarding(OPS, REFUSED)


# The sweep of test_hash_encode.py asks the same of the device; the other is about the table of cases.
ELSEWHERE = ("test_matches_oracle", "test_cases_cover_every_pair")


@pytest.fixture
def atomic_sums(monkeypatch):
    """Atomic adds come in any order: the error of a row's sum is not the CPU's."""
    monkeypatch.setattr(cases, "SUM_TOLERANCE", ATOMIC_SLACK * cases.SUM_TOLERANCE)


@pytest.mark.usefixtures("guard", "atomic_sums")
class TestHashEncode(again.tests_of(test_hash_encode, ELSEWHERE)):
    pass


@pytest.mark.usefixtures("guard", "atomic_sums")
class TestGradients(again.tests_of(test_hash_encode_gradients)):
    pass


@pytest.mark.usefixtures("guard")
class TestInvalid(again.tests_of(test_hash_encode_invalid, ["test_zero_out_refuses_xla_too"])):
    pass


def test_control_the_cpu_is_seen(guard):
    """With soft placement off and the op on the CPU, the guard of the tests above fails."""
    assert not tf.config.get_soft_device_placement()
    case = test_hash_encode.BASE
    result = test_hash_encode.run("HashEncode", case.arrays, case.grid)
    assert guard == ["hash_encode"] and np.any(result.numpy())
    with tf.device("CPU:0"), pytest.raises(AssertionError, match="hash_encode ran on .*CPU:0"):
        raw_ops.hash_encode(
            *(tf.constant(case.arrays[name]) for name in ("points", "table")),
            case.grid.offsets,
            **case.grid.op_attributes,
        )
