"""Configurations and states as checkpoints hold them, checked field by field."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import CheckpointError, short
from .reading import is_number

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

_Config = TypeVar("_Config", bound=Any)
_Model = TypeVar("_Model")
_Train = TypeVar("_Train")
_FLAGS = ("bool", "bool | None")


def check_fields(
    config: Any, limits: dict[str, tuple[float, float]], choices: dict[str, tuple[Any, ...]]
) -> None:
    """Raises ValueError, with the field, unless every value of a dataclass is of its type and within its limits."""
    for field in dataclasses.fields(config):
        name, value, kinds = field.name, getattr(config, field.name), str(field.type).split(" | ")
        if value is None and "None" in kinds:
            continue
        if name in choices:
            if isinstance(value, bool) or value not in choices[name]:
                wanted = ", ".join(map(str, choices[name]))
                raise ValueError(f"field '{name}' must be one of {wanted}, got {short(value)}")
        elif field.type in _FLAGS:
            if not isinstance(value, bool):
                raise ValueError(f"field '{name}' must be true or false, got {short(value)}")
        else:
            whole = "int" in kinds
            least, most = limits[name]
            fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
            if not (fits and least <= value <= most):
                kind = "a whole number" if whole else "a number"
                raise ValueError(
                    f"field '{name}' must be {kind} from {least:g} to {most:g}, got {short(value)}"
                )


def record_from(header: dict[str, Any], name: str, kind: type[_Config], where: str) -> _Config:
    """The dataclass that a field of a header holds.

    Raises:
      CheckpointError: If it has fields that this version does not know, or values that it does not take.
    """
    values = header.get(name)
    if not isinstance(values, dict):
        raise CheckpointError(
            f"{where}: field '{name}' must be an object, got {short(values)}; train again."
        )
    unknown = sorted(set(values) - {field.name for field in dataclasses.fields(kind)})
    if unknown:
        raise CheckpointError(
            f"{where}: field '{name}' has {short(unknown[0])}, which this version does not know; update metal_ops, or "
            "train again."
        )
    try:
        return kind(**values)
    except ValueError as error:
        raise CheckpointError(f"{where}: field '{name}': {error}; train again.") from None


def number_from(header: dict[str, Any], name: str, where: str, least: float, most: float) -> Any:
    """The number that a field of a header holds: whole, except for seconds."""
    value: Any = header.get(name)
    fits = is_number(value) and (isinstance(value, int) or name == "seconds")
    if not (fits and least <= value <= most):
        raise CheckpointError(
            f"{where}: field '{name}' must be a number from {least:g} to {most:g}, got {short(value)}; train again."
        )
    return value


def configs_from(
    header: dict[str, Any], where: str, model: type[_Model], train: type[_Train]
) -> tuple[_Model, _Train]:
    """The configuration in a checkpoint's header, by its two classes.

    Raises:
      CheckpointError: It has fields that this version does not know, or values that it does not take.
    """
    return record_from(header, "model", model, where), record_from(header, "train", train, where)


def data_from(header: dict[str, Any], where: str) -> str | None:
    """The path in a checkpoint's header, None for built-in data.

    Raises:
      CheckpointError: It is no path.
    """
    data = header.get("data")
    if data is not None and not isinstance(data, str):
        raise CheckpointError(
            f"{where}: field 'data' must be a path, got {short(data)}; train again."
        )
    return data


def with_budget(config: _Config, seconds: float | None, steps: int | None) -> _Config:
    """The configuration with another budget, if one is given."""
    if seconds is None and steps is None:
        return config
    return dataclasses.replace(config, seconds=seconds, steps=steps)


def history_from(header: dict[str, Any], where: str, measure: str) -> list[dict[str, float]]:
    """The points of a header's history, each with seconds and a measure."""
    history = header.get("history")
    wrong = f"{where}: field 'history' must be a list of points with numbers"
    if not isinstance(history, list):
        raise CheckpointError(f"{wrong}, got {short(history)}; train again.")
    for place, point in enumerate(history):
        # The loss is NaN where a run was scored before its first step.
        numbers = point.values() if isinstance(point, dict) else [None]
        if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in numbers):
            raise CheckpointError(f"{wrong}, got {short(point)} in place {place}; train again.")
        if not (is_number(point.get("seconds")) and measure in point):
            raise CheckpointError(
                f"{wrong}, but place {place} has no 'seconds' or no '{measure}'; train again."
            )
    return history


def take_state(state: dict[str, tf.Variable], arrays: dict[str, np.ndarray], where: str) -> None:
    """Assigns the arrays of a checkpoint to variables, all or none.

    Raises:
      CheckpointError: If one is missing, or of another shape or dtype.
    """
    for name, variable in state.items():
        if name not in arrays:
            raise CheckpointError(f"{where}: array '{name}' is missing; it is of another version.")
        if arrays[name].shape != tuple(variable.shape):
            raise CheckpointError(
                f"{where}: array '{name}' has shape {list(arrays[name].shape)}, expected "
                f"{list(variable.shape)}; the model is configured differently."
            )
        if arrays[name].dtype != variable.dtype:
            raise CheckpointError(
                f"{where}: array '{name}' has dtype {arrays[name].dtype}, expected {variable.dtype}; train again."
            )
    for name, variable in state.items():
        variable.assign(arrays[name])
