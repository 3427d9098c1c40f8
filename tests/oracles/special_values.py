"""Makes special_values.json, numbers of special functions: `python -m tests.oracles.special_values`, with mpmath 1.3.0.

Arguments are float32's: large, tiny, nearly equal and on both sides of where a kernel changes its formula. The file is
committed, so that no test needs mpmath.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_suffix(".json")


def read() -> dict[str, np.ndarray]:
    """By op: [arguments and value, numbers] of float64."""
    return {op: np.array(rows, "float64").T for op, rows in json.loads(FILE.read_text()).items()}


def _lower(mp: Any, a: Any, x: Any, upper: bool) -> Any:
    """The incomplete gamma functions: the series, with as many digits as the upper one takes."""
    with mp.workdps(mp.mp.dps + 60):
        term = total = mp.mpf(1)
        k = a
        while term > total * mp.mpf(10) ** -mp.mp.dps:
            k += 1
            term *= x / k
            total += term
        value = total * mp.exp(a * mp.log(x) - x - mp.loggamma(1 + a))
        return 1 - value if upper else value


def _slope(mp: Any, a: Any, x: Any) -> Any:
    step, upper = a * mp.mpf(10) ** -18, x > a
    change = _lower(mp, a + step, x, upper) - _lower(mp, a - step, x, upper)
    return change / (2 * step) * (-1 if upper else 1)


def _zeta(mp: Any, s: Any, q: Any) -> Any:
    """By Euler and Maclaurin from 60 on; below 0 by the terms up to it."""
    if q < 0:
        below = sum(((q + i) ** -s for i in range(int(mp.ceil(-q)))), mp.mpf(0))
        return below + _zeta(mp, s, q + mp.ceil(-q))
    end = q + 60
    total = sum((q + i) ** -s for i in range(60)) + end ** (1 - s) / (s - 1) + end**-s / 2
    slope = s * end ** (-s - 1)
    for k in range(1, 25):
        total += mp.bernoulli(2 * k) / mp.factorial(2 * k) * slope
        slope *= (s + 2 * k - 1) * (s + 2 * k) / end**2
    return total


def _beta(mp: Any, a: Any, b: Any, x: Any) -> Any:
    """A series of positive terms."""
    term = total = mp.mpf(1)
    n = 0
    while term > total * mp.mpf(10) ** -mp.mp.dps:
        term *= x * (a + b + n) / (a + 1 + n)
        total += term
        n += 1
    rest = mp.loggamma(a + b) - mp.loggamma(a + 1) - mp.loggamma(b)
    return total * mp.exp(a * mp.log(x) + b * mp.log(1 - x) + rest)


def _inverse(mp: Any, tail: Any) -> Any:
    """y >= 0 with erfc(y) = tail."""
    if tail > 0.1:
        return mp.erfinv(1 - tail)
    return mp.findroot(lambda y: mp.log(mp.erfc(y)) - mp.log(tail), 0.9 * mp.sqrt(-mp.log(tail)))


def _functions(mp: Any) -> dict[str, tuple[Callable[..., Any], Iterable[tuple[float, ...]]]]:
    near = [0.3, 0.61, 0.9, 0.99, 0.9999, 1.0, 1.0001, 1.01, 1.1, 1.39, 1.41, 2.0]
    shapes = [0.01, 0.49, 0.9, 3, 7.9, 8.1, 19.9, 20, 60, 1e3, 1e5]
    gamma = [(a, a * f) for a, f in itertools.product(shapes, near) if a < 1e4 or abs(f - 1) < 0.02]
    gamma += [(a, x) for a in (1e-30, 1e-5, 0.3) for x in (1e-30, 1e-5, 0.2, 0.9, 1.05, 20)]
    few = [(a, x) for a, x in gamma if 1e-4 < a < 2e3]
    equal = [(a, a) for a in (1e6, 8.7e6)]
    halves = [-0.25, -0.5, -1.3, -7.25, -100.5]
    tiny = [10.0**-i for i in (38, 30, 20, 10, 7, 5, 3)]
    zeta = list(
        itertools.product((1.0000002, 1.5, 2, 3, 11, 100), (1e-6, 0.5, 1, 2, 9.9, 30, 1e6, 1e20))
    )
    order = list(itertools.product((1, 2, 5, 20, 80), (1e-5, 0.5, 1, 2, 10, 60, 1e3, 1e10)))
    whole = list(itertools.product((2, 3, 4, 7), halves))
    unit = [
        *tiny,
        0.05,
        0.3,
        0.5,
        0.7,
        0.95,
        0.99,
        0.9966,
        *(1 - 2.0**-i for i in (10, 20, 23, 24)),
    ]
    wide = [
        *tiny,
        *(x / 4 for x in range(1, 40)),
        1e2,
        1e4,
        1e10,
        1e30,
        -0.25,
        -0.6,
        -1.1,
        -3.3,
        -9.9,
    ]
    beta = [(a, b, a / (a + b) * f) for a, b, f in itertools.product((0.5, 3, 60, 2e3), (0.5, 3, 60, 2e3),
            (0.9, 0.99, 1.0, 1.01)) if a / (a + b) * f < 1]  # fmt: skip
    half = mp.mpf(1) / 2

    def quantile(p: Any) -> Any:
        if p == half:
            return mp.mpf(0)
        return mp.sqrt(2) * _inverse(mp, 2 * min(p, 1 - p)) * (-1 if p < half else 1)

    def of_sample(a: Any, x: Any) -> Any:
        return -_slope(mp, a, x) / mp.exp(-x + (a - 1) * mp.log(x) - mp.loggamma(a))

    def polygamma(n: Any, x: Any) -> Any:
        return (-1) ** (int(n) + 1) * mp.factorial(n) * _zeta(mp, n + 1, x)

    return {
        "Igamma": (lambda a, x: _lower(mp, a, x, False), gamma + equal),
        "Igammac": (lambda a, x: _lower(mp, a, x, True), gamma + equal),
        "IgammaGradA": (lambda a, x: _slope(mp, a, x), few),
        "RandomGammaGrad": (of_sample, few),
        "Zeta": (lambda s, q: _zeta(mp, s, q), zeta + whole),
        "Polygamma": (polygamma, order + whole),
        "Betainc": (lambda a, b, x: _beta(mp, a, b, x), [*beta, (1e6, 1e6, 0.5)]),
        "Lgamma": (lambda x: mp.re(mp.loggamma(x)), [(x,) for x in wide]),
        "Digamma": (mp.digamma, [(x,) for x in wide]),
        "Erf": (mp.erf, [(x,) for x in (*unit, 1.5, 3, 5)]),
        "Erfc": (mp.erfc, [(x,) for x in (*unit, -1, 1.5, 3, 5, 9)]),
        "Erfinv": (lambda x: _inverse(mp, 1 - x), [(x,) for x in unit]),
        "Ndtri": (quantile, [(x,) for x in (*unit, 1.5e-38, 0.5 + 2**-20)]),
    }


def main() -> None:
    import mpmath as mp

    mp.mp.dps = 40
    found = {}
    for op, (function, arguments) in _functions(mp).items():
        rows = []
        for exact in arguments:
            given = [float(np.float32(x)) for x in exact]
            value = function(*(mp.mpf(x) for x in given))
            if 1e-37 < abs(value) < 3e38:
                rows.append([*(float(f"{x:.9g}") for x in given), float(mp.nstr(value, 12))])
        found[op] = rows
    lines = [f" {json.dumps(op)}: {json.dumps(rows)}" for op, rows in found.items()]
    FILE.write_text("{\n" + ",\n".join(lines).replace("], [", "],\n  [") + "\n}\n")


if __name__ == "__main__":
    main()
