"""Spherical harmonics from associated Legendre functions, and frequency encoding, in float64."""

from __future__ import annotations

import math

import numpy as np


def _legendre(band: int, m: int, z: np.ndarray) -> np.ndarray:
    """P_l^m without (1 - z^2)^(m/2) and phase: the m-th derivative of Rodrigues' formula, as a polynomial."""
    power = np.polynomial.Polynomial([-1.0, 0.0, 1.0]) ** band
    return (
        power.deriv(band + m)(z) / (2**band * math.factorial(band)) if band + m else np.ones_like(z)
    )


def spherical_harmonics(directions: np.ndarray, degree: int) -> np.ndarray:
    """Real, orthonormal, with the Condon-Shortley phase. [n, 3] -> [n, degree^2]"""
    x, y, z = np.asarray(directions, np.float64).T
    result = np.zeros((len(x), degree**2))
    for band in range(degree):
        for m in range(-band, band + 1):
            k = math.sqrt(
                (2 * band + 1)
                / (4 * math.pi)
                * math.factorial(band - abs(m))
                / math.factorial(band + abs(m))
            )
            power = (x + 1j * y) ** abs(m)
            angle = power.real if m >= 0 else power.imag
            k *= math.sqrt(2) if m else 1
            result[:, band * band + band + m] = (-1) ** m * k * _legendre(band, abs(m), z) * angle
    return result


def frequencies(x: np.ndarray, count: int, include_input: bool, times_pi: bool) -> np.ndarray:
    """[n, d] -> [n, d (2 count + include_input)], with phases reduced in extended precision."""
    wide = np.asarray(x, np.longdouble)
    pi = np.longdouble("3.14159265358979323846264338327950288")
    blocks = [wide] if include_input else []
    for k in range(count):
        phase = wide * np.longdouble(2.0) ** k
        phase = np.fmod(phase, 2) * pi if times_pi else np.fmod(phase, 2 * pi)
        blocks += [np.sin(phase), np.cos(phase)]
    if not blocks:
        return np.zeros((len(x), 0))
    return np.concatenate(blocks, axis=1).astype(np.float64)
