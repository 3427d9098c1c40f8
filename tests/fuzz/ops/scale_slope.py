"""Right calls of the ops of kernels/scale_slope."""

from tests.fuzz.values import F4, POINTS

RAW = {"scale_slope_sum": dict(incoming=POINTS, slope=POINTS, parameter=F4(1))}
