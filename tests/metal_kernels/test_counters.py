"""Counters by which threadgroups know who is the last: kernels/runtime/counters.h, attention_join.metal.h."""

from __future__ import annotations

import re

import numpy as np

from tests.msl.shaders import library
from tests.processes import ROOT

SOURCE = """
#include "kernels/attention/attention_join.metal.h"
kernel void who(device atomic_uint* counters [[buffer(0)]], device uint* last [[buffer(1)]],
                constant AttentionSplits& splits [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  if (attention_is_last(counters + i % 4, splits)) last[i] += 1;
}
"""


def counts() -> int:
    text = (ROOT / "kernels/runtime/counters.h").read_text()
    return 1 << int(re.search(r"kCounts = 1 << (\d+);", text)[1])


def test_one_of_each_launch_is_the_last():
    """Whatever launches before it have left, such as failed halfway, and whatever parts they had."""
    who = library(SOURCE, include=(str(ROOT),))["who"]
    step = counts()
    launches = [1, 2, 3, 2**32 // step - 1]
    # New; and one of each counter that was left at a part, and at all parts, of the launch before.
    counters = np.array([0, 5, step - 1, 0], np.uint32)
    for launch, parts in zip(launches, (7, 2, step - 1, 33), strict=True):
        last = np.zeros(4 * parts, np.uint32)
        splits = np.array([parts, launch * step], np.uint32)
        who.run(len(last), 1, {0: counters, 1: last, 2: splits}, workers=2)
        assert last.reshape(parts, 4).sum(0).tolist() == [1, 1, 1, 1], launch
        assert counters.tolist() == [launch * step + parts] * 4
        counters[1] -= 1  # as if one had not come
