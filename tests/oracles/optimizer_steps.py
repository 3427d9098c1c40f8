"""One step of Adam, AMSGrad, RMSprop and Adagrad as Keras 3 writes them, in float64, of given numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


def adam(kept: Arrays, g: np.ndarray, n: dict[str, Any]) -> Arrays:
    """With "hats" in `kept`, AMSGrad."""
    new = dict(kept)
    new["m"] = kept["m"] + (g - kept["m"]) * n["one_minus_beta1"]
    new["v"] = kept["v"] + (g**2 - kept["v"]) * n["one_minus_beta2"]
    if "hats" in kept:
        new["hats"] = np.maximum(kept["hats"], new["v"])
    size = np.sqrt(new["hats" if "hats" in kept else "v"]) + n["epsilon"]
    return new | {"var": kept["var"] - n["alpha"] * new["m"] / size}


def rmsprop(kept: Arrays, g: np.ndarray, n: dict[str, Any]) -> Arrays:
    """With "averages" in `kept`, centred; with "momenta", with momentum."""
    new = dict(kept)
    new["velocity"] = n["rho"] * kept["velocity"] + n["one_minus_rho"] * g**2
    size = new["velocity"] + n["epsilon"]
    if "averages" in kept:
        new["averages"] = n["rho"] * kept["averages"] + n["one_minus_rho"] * g
        size = size - new["averages"] ** 2
    step = n["lr"] * g / np.sqrt(size)
    if "momenta" in kept:
        step = new["momenta"] = n["momentum"] * kept["momenta"] + step
    return new | {"var": kept["var"] - step}


def adagrad(kept: Arrays, g: np.ndarray, n: dict[str, Any]) -> Arrays:
    """The sum of squares is "accumulator"."""
    total = kept["accumulator"] + g**2
    step = n["lr"] * g / np.sqrt(total + n["epsilon"])
    return {"accumulator": total, "var": kept["var"] - step}
