"""How far the standard library's floating-point functions are from the true value, in units in the last place.

The bounds are those of the specification's chapter 8 (precise math, single and half precision); 0.5 is "correctly
rounded". tests/msl/test_numbers.py and `python -m tools.reference --measure` call `measure`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .shaders import library


class Function(NamedTuple):
    """A function of one to three arguments.

    Attributes:
      name: how it is called; the test's shader calls it with a, b, c.
      oracle: the same in float64.
      single: the bound for float.
      half: the bound for half.
      domain: where the specification defines the result; everywhere if it is None.
    """

    name: str
    oracle: Callable[..., np.ndarray]
    single: float
    half: float
    domain: Callable[..., np.ndarray] | None = None
    call: str = ""

    @property
    def arguments(self) -> int:
        """How many it takes."""
        return self.oracle.__code__.co_argcount


EXACT = 0.0
ROUNDED = 0.5


def _reduced(x: np.ndarray) -> np.ndarray:
    """x modulo 2 in [-1, 1], exactly."""
    r = np.fmod(x, 2.0)
    return np.where(np.abs(r) > 1, r - np.copysign(2.0, r), r)


def _sinpi(x: np.ndarray) -> np.ndarray:
    r = _reduced(x)
    return np.sin(np.pi * np.where(np.abs(r) > 0.5, np.copysign(1.0, r) - r, r))


def _cospi(x: np.ndarray) -> np.ndarray:
    return np.sin(np.pi * (0.5 - np.abs(_reduced(x))))


def _round(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1.0, x), whole)


def _fract(a: np.ndarray) -> np.ndarray:
    return np.where(np.isinf(a), 0.0, a - np.floor(a))


def _median(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return np.fmax(np.fmin(a, b), np.fmin(np.fmax(a, b), c))


def _no_nan(*of: np.ndarray) -> np.ndarray:
    return ~np.any([np.isnan(x) for x in of], axis=0)


def _powr_domain(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x > 0) & np.isfinite(x) & np.isfinite(y)


F = Function
FUNCTIONS = [
    F("acos", lambda a: np.arccos(a), 4, 1), F("acosh", lambda a: np.arccosh(a), 4, 1), F("asin", lambda a: np.arcsin(a), 4, 1),
    F("asinh", lambda a: np.arcsinh(a), 4, 1), F("atan", lambda a: np.arctan(a), 5, 1), F("atan2", lambda a, b: np.arctan2(a, b), 6, 1),
    F("atanh", lambda a: np.arctanh(a), 5, 1), F("ceil", lambda a: np.ceil(a), EXACT, EXACT),
    F("copysign", lambda a, b: np.copysign(a, b), EXACT, EXACT, _no_nan), F("cos", lambda a: np.cos(a), 4, 1),
    F("cosh", lambda a: np.cosh(a), 4, 1), F("cospi", _cospi, 4, 1), F("divide", lambda a, b: a / b, ROUNDED, ROUNDED),
    F("exp", lambda a: np.exp(a), 4, 1), F("exp2", lambda a: np.exp2(a), 4, 1), F("exp10", lambda a: 10.0**a, 4, 1),
    F("fabs", lambda a: np.abs(a), EXACT, EXACT), F("fdim", lambda a, b: np.where(a > b, a - b, np.where(_no_nan(a, b), 0.0, np.nan)), ROUNDED, ROUNDED),
    F("floor", lambda a: np.floor(a), EXACT, EXACT), F("fma", lambda a, b, c: a * b + c, ROUNDED, ROUNDED),
    F("fmax", lambda a, b: np.fmax(a, b), EXACT, EXACT), F("fmin", lambda a, b: np.fmin(a, b), EXACT, EXACT),
    F("fmod", lambda a, b: np.fmod(a, b), EXACT, EXACT), F("fract", _fract, ROUNDED, ROUNDED),
    F("frexp", lambda a: np.frexp(a)[0], EXACT, EXACT, call="frexp(a, e)"), F("ilogb", lambda a: np.frexp(a)[1] - 1.0, EXACT, EXACT, lambda a: np.isfinite(a) & (a != 0), "T(ilogb(a))"),
    F("ldexp", lambda a, b: np.ldexp(a, np.nan_to_num(np.clip(b, -400, 400)).astype(int)), ROUNDED, ROUNDED, lambda a, b: np.abs(b) <= 400, "ldexp(a, int(b))"),
    F("log", lambda a: np.log(a), 4, 1), F("log2", lambda a: np.log2(a), 4, 1), F("log10", lambda a: np.log10(a), 4, 1),
    F("fmax3", lambda a, b, c: np.fmax(np.fmax(a, b), c), EXACT, EXACT), F("fmin3", lambda a, b, c: np.fmin(np.fmin(a, b), c), EXACT, EXACT),
    F("fmedian3", _median, EXACT, EXACT, _no_nan), F("modf", lambda a: np.where(np.isinf(a), np.copysign(0.0, a), a - np.trunc(a)), EXACT, EXACT, call="modf(a, w)"),
    F("pow", lambda a, b: a**b, 16, 1), F("powr", lambda a, b: a**b, 16, 1, _powr_domain), F("rint", lambda a: np.rint(a), EXACT, EXACT),
    F("round", _round, EXACT, EXACT), F("rsqrt", lambda a: 1 / np.sqrt(a), ROUNDED, ROUNDED), F("saturate", lambda a: np.fmin(np.fmax(a, 0.0), 1.0), EXACT, EXACT),
    F("sign", lambda a: np.where(np.isnan(a), 0.0, np.sign(a)), EXACT, EXACT), F("sin", lambda a: np.sin(a), 4, 1),
    F("sincos", lambda a: np.sin(a), 4, 1, call="sincos(a, w)"), F("sinh", lambda a: np.sinh(a), 4, 1), F("sinpi", _sinpi, 4, 1),
    F("sqrt", lambda a: np.sqrt(a), ROUNDED, ROUNDED), F("step", lambda a, b: np.where(b < a, 0.0, 1.0), EXACT, EXACT, _no_nan),
    F("tan", lambda a: np.tan(a), 6, 1), F("tanh", lambda a: np.tanh(a), 5, 1), F("tanpi", lambda a: _sinpi(a) / _cospi(a), 6, 1),
    F("trunc", lambda a: np.trunc(a), EXACT, EXACT), F("x + y", lambda a, b: a + b, ROUNDED, ROUNDED, call="a + b"),
    F("x - y", lambda a, b: a - b, ROUNDED, ROUNDED, call="a - b"), F("x * y", lambda a, b: a * b, ROUNDED, ROUNDED, call="a * b"),
    F("x / y", lambda a, b: a / b, ROUNDED, ROUNDED, call="a / b"), F("1 / x", lambda a: 1 / a, ROUNDED, ROUNDED, call="T(1) / a"),
]  # fmt: skip
# type: NumPy's, the bits of its significand, its smallest exponent.
TYPES = {"float": (np.float32, 24, -126), "half": (np.float16, 11, -14)}


def _shader(type_: str) -> str:
    out = [f"typedef {type_} T;\n"]
    for row, function in enumerate(FUNCTIONS):
        call = function.call or f"{function.name}({', '.join('abc'[: function.arguments])})"
        loads = "".join(
            f"T {n} = in[{k} * n + i]; " for k, n in enumerate("abc"[: function.arguments])
        )
        out.append(
            f"kernel void f{row}(device const T* in [[buffer(0)]], device T* out [[buffer(1)]], constant uint& n [[buffer(2)]], "
            f"uint i [[thread_position_in_grid]]) {{ int e; T w; {loads}out[i] = {call}; (void)e; (void)w; }}\n"
        )
    return "".join(out)


def inputs(type_: str, count: int) -> np.ndarray:
    """[3, n]: for half every value there is, for float `count` over all exponents and as many of usual size."""
    rng = np.random.default_rng(7)
    if type_ == "half":
        bits = np.arange(65536, dtype=np.uint16)
        return np.stack([bits, rng.permutation(bits), rng.permutation(bits)]).view(np.float16)
    bits = rng.integers(0, 2**32, (3, count), dtype=np.uint32).view(np.float32)
    usual = (rng.normal(size=(3, count)) * 10.0 ** rng.uniform(-2, 1.5, (3, count))).astype(
        np.float32
    )
    edges = np.float32(
        [0, -0.0, 1, -1, 0.5, 2, np.inf, -np.inf, np.nan, 1e-45, -1e-38, 3e38, 8388609, 0.49999997]
    )
    corners = np.stack(np.meshgrid(edges, edges, edges)).reshape(3, -1)
    return np.concatenate([bits, usual, corners], axis=1)


def distance(made: np.ndarray, oracle: np.ndarray, type_: str) -> np.ndarray:
    """Units in the last place of the type between its numbers and true values; infinite where only one is NaN."""
    _, bits, lowest = TYPES[type_]
    largest = 2.0 ** (2 - lowest)  # the value in place of an infinity
    made, oracle = made.astype(np.float64), oracle.astype(np.float64)
    both = np.isnan(made) & np.isnan(oracle)
    one = np.isnan(made) != np.isnan(oracle)
    made, oracle = np.nan_to_num(np.clip([made, oracle], -largest, largest))
    _, exponent = np.frexp(oracle)
    unit = np.ldexp(1.0, np.clip(exponent - 1, lowest, 1 - lowest) - (bits - 1))
    return np.where(both, 0, np.where(one, np.inf, np.abs(made - oracle) / unit))


def measure(
    type_: str, count: int, fast_math: bool = False
) -> dict[str, tuple[float, tuple[float, ...]]]:
    """{function: (largest distance, the arguments there)} over `inputs`."""
    shader = library(_shader(type_), fast_math=fast_math)
    given = inputs(type_, count)
    n = given.shape[1]
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = given.astype(np.float64)
    out = {}
    for row, function in enumerate(FUNCTIONS):
        made = np.zeros(n, given.dtype)
        shader[f"f{row}"].run(n, 1024, {0: np.ascontiguousarray(given), 1: made, 2: np.uint32(n)})
        arguments = wide[: function.arguments]
        with np.errstate(all="ignore"):  # errors of values that are infinite or NaN on purpose
            oracle = function.oracle(*arguments)
            if function.name == "fract":  # never 1: fmin(x - floor(x), the largest number below 1)
                oracle = np.minimum(oracle, 1 - 2.0 ** -TYPES[type_][1])
            apart = distance(made, oracle, type_)
            if function.domain is not None:
                apart = np.where(function.domain(*arguments), apart, 0)
        worst = int(np.argmax(apart))
        out[function.name] = float(apart[worst]), tuple(float(x[worst]) for x in arguments)
    return out


def bound(function: Function, type_: str) -> float:
    """The error that the specification allows; the oracle's own rounding comes on top."""
    return (function.single if type_ == "float" else function.half) + 1e-6
