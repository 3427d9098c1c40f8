"""Right calls of the ops of kernels/attention."""

import numpy as np

from tests.fuzz.values import F4, N

HEADS = np.linspace(-1, 1, N * 2 * 3 * 4, dtype=F4).reshape(N, 2, 3, 4)
MASK, BIAS = np.ones((1, 1, 3, 3), bool), np.zeros((1, 2, 3, 3), F4)
LENGTHS = np.arange(N, dtype=np.int32)
PUBLIC = {
    "scaled_dot_product_attention": dict(
        q=HEADS, k=HEADS, v=HEADS, mask=MASK, bias=BIAS, key_lengths=LENGTHS, seed=np.zeros(2, np.int32)
    ),
}  # fmt: skip
INPUTS = dict(
    q=HEADS, k=HEADS, v=HEADS, mask=MASK, bias=BIAS, key_lengths=LENGTHS, seed=np.zeros(2, np.int32)
)
OPTIONS = dict(use_mask=True, use_bias=True, window_right=0, dropout=0.1, soft_cap=2.0)
SAVED = dict(outputs=HEADS, log_sum_exp=HEADS[..., 0], gradients=HEADS)
RAW = {
    "scaled_dot_product_attention": dict(**INPUTS, **OPTIONS),
    "scaled_dot_product_attention_grad": dict(**INPUTS, **SAVED, **OPTIONS),
    "scaled_dot_product_attention_bias_grad": dict(**INPUTS, **SAVED, **OPTIONS),
}
