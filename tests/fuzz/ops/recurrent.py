"""Right calls of the ops of kernels/recurrent."""

import numpy as np

from tests.fuzz.values import F4, N

STEPS, UNITS = 3, 2
NONE = np.zeros(0, F4)
LENGTHS = np.arange(N, dtype=np.int32) % (STEPS + 1)
MASK = np.arange(N * STEPS).reshape(N, STEPS) % 2 == 0


def _floats(*shape: int) -> np.ndarray:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=F4).reshape(shape)


def _layer(gates: int) -> dict[str, np.ndarray]:
    return dict(
        x=_floats(N, STEPS, 4),
        kernel=_floats(4, gates * UNITS),
        recurrent_kernel=_floats(UNITS, gates * UNITS),
        bias=_floats(gates * UNITS),
    )


STATE = _floats(N, UNITS)
PUBLIC = {
    "lstm": dict(
        _layer(4),
        initial_state=[STATE, STATE],
        lengths=LENGTHS,
        kernel_gamma=_floats(4 * UNITS),
        recurrent_gamma=_floats(4 * UNITS),
        cell_gamma=_floats(UNITS),
        cell_beta=_floats(UNITS),
        epsilon=1e-5,
    ),
    "gru": dict(_layer(3), initial_state=STATE, recurrent_bias=_floats(3 * UNITS), mask=MASK),
    "minimal_gated_unit": dict(_layer(2), initial_state=STATE, lengths=LENGTHS),
    "forget_gate_unit": dict(_layer(2), initial_state=STATE, beta=0.5, mask=MASK),
}
GATES, SEQUENCE = _floats(N, STEPS, 4 * UNITS), _floats(N, STEPS, UNITS)
STATES = dict(
    recurrent_kernel=_floats(UNITS, 4 * UNITS),
    initial_h=STATE,
    initial_c=STATE,
    mask=MASK,
    projection=NONE,
    recurrent_gamma=_floats(4 * UNITS),
    cell_gamma=_floats(UNITS),
    cell_beta=_floats(UNITS),
)
RAW = {
    "recurrent_sequence": dict(gates=GATES, **STATES, recurrent_bias=NONE, cell="lstm", beta=1.0, epsilon=1e-5),
    "recurrent_sequence_grad": dict(
        d_y=SEQUENCE, d_h=STATE, d_c=STATE, activated=GATES, y=SEQUENCE, cells=SEQUENCE, products=GATES, **STATES,
        cell="lstm", beta=1.0, epsilon=1e-5,
    ),
}  # fmt: skip
