"""Ops refuse arguments at run time in the words of TensorFlow's CPU kernels, after the op's name."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

raw = tf.raw_ops


def set_diagonal(x, diagonal, k=0):
    return raw.MatrixSetDiagV3(input=x, diagonal=np.float32(diagonal), k=k)


SAME_WORDS = {
    "Bitcast": lambda x: raw.Bitcast(input=x[:, 1:], type=tf.complex128),
    "Range": lambda x: raw.Range(start=x, limit=5.0, delta=1.0),
    "Roll": lambda x: raw.Roll(input=x, shift=[[1]], axis=[0]),
    "MatrixSetDiag": lambda x: raw.MatrixSetDiag(input=x, diagonal=np.float32([1, 2])),
    "MatrixSetDiag: batch": lambda x: set_diagonal(x[None], np.ones((2, 3))),
    "MatrixSetDiag: rank": lambda x: set_diagonal(x[0], [1]),
    "MatrixSetDiag: scalar": lambda x: set_diagonal(x, 1),
    "MatrixSetDiag: many": lambda x: set_diagonal(x, [1, 2, 3], [1, 2, 3]),
    "MatrixSetDiag: order": lambda x: set_diagonal(x, [1, 2, 3], [1, 0]),
    "MatrixSetDiag: lower": lambda x: set_diagonal(x, [1, 2, 3], -9),
    "MatrixSetDiag: upper": lambda x: set_diagonal(x, np.ones((2, 3)), [0, 9]),
    "MatrixSetDiag: band": lambda x: set_diagonal(x, np.ones((3, 3)), [0, 1]),
    "MatrixSetDiag: matrix": lambda x: set_diagonal(x, [1, 2, 3], [[0]]),
    "MatrixDiagPart: order": lambda x: raw.MatrixDiagPartV3(input=x, k=[1, 0], padding_value=0.0),
}


@pytest.mark.parametrize("name", SAME_WORDS)
def test_bad_arguments(name):
    said = []
    for device in ("CPU:0", "GPU:0"):
        with tf.device(device), pytest.raises(tf.errors.InvalidArgumentError) as error:
            SAME_WORDS[name](tf.identity(np.ones((3, 4), np.float32)))
        said.append("".join(error.value.message.split("}} ", 1)[-1].rsplit(" [Op:", 1)[0].split()))
    assert said[0] in said[1], said
