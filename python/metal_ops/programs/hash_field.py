"""A hash grid and a small network behind it, which programs fit to data, and its configuration and options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .command import whole
from .records import check_fields

if TYPE_CHECKING:
    import argparse

LIMITS: dict[str, tuple[float, float]] = {
    "n_levels": (1, 32),
    "log2_hashmap_size": (8, 26),
    "base_resolution": (1, 1 << 12),
    "finest_resolution": (1, 1 << 17),
    "n_hidden_layers": (1, 8),
    "seconds": (0, 1e9),
    "steps": (0, (1 << 31) - 1),
    "seed": (0, 1 << 30),
    "batch": (4, 1 << 22),
    "learning_rate": (1e-9, 1e3),
    "final_learning_rate": (1e-9, 1),
}
CHOICES: dict[str, tuple[Any, ...]] = {
    "n_features_per_level": (1, 2, 4, 8),
    "n_neurons": (16, 32, 64, 128),
}
_MOST_INPUTS = 128
_OPTIONS = (
    ("n_levels", "levels", "resolutions of the grid"),
    ("n_features_per_level", "features", "values of a row"),
    ("log2_hashmap_size", "log2-hashmap-size", "log2 of the most rows of a level"),
    ("base_resolution", "base-resolution", "of the coarsest level"),
    ("finest_resolution", "finest-resolution", "of the finest level"),
    ("n_neurons", "neurons", "width of the network"),
    ("n_hidden_layers", "hidden-layers", "of the network"),
)


@dataclass(frozen=True)
class FieldConfig:
    """A hash grid, and a network that makes values of its features.

    Attributes:
      n_levels: Resolutions of the grid.
      n_features_per_level: Values of a row.
      log2_hashmap_size: Base-2 logarithm of the most rows that a level has.
      base_resolution: Resolution of the coarsest level.
      finest_resolution: Resolution of the finest level.
      n_neurons: Width of the network.
      n_hidden_layers: Its hidden layers.

    Raises:
      ValueError: A value is of another type, out of `LIMITS`, or does not fit another.
    """

    n_levels: int
    n_features_per_level: int
    log2_hashmap_size: int
    base_resolution: int
    finest_resolution: int
    n_neurons: int
    n_hidden_layers: int

    def __post_init__(self) -> None:
        check_fields(self, LIMITS, CHOICES)
        if self.finest_resolution < self.base_resolution:
            raise ValueError(
                f"field 'finest_resolution' must be at least the {self.base_resolution} of 'base_resolution', got "
                f"{self.finest_resolution}"
            )
        # With the point itself, where the network sees it.
        if self.n_levels * self.n_features_per_level > _MOST_INPUTS - 3:
            raise ValueError(
                f"fields 'n_levels' and 'n_features_per_level' must have a product of at most {_MOST_INPUTS - 3}, got "
                f"{self.n_levels * self.n_features_per_level}"
            )


def add_field(parser: argparse.ArgumentParser, model: FieldConfig, finest: str = "") -> None:
    """The options of a field; `finest` describes the finest resolution if it is left out, if not the model's."""
    group = parser.add_argument_group("model")
    for name, option, what in _OPTIONS:
        default = None if finest and name == "finest_resolution" else getattr(model, name)
        said = f"{what} ({'%(default)s' if default is not None else finest})"
        if name in CHOICES:
            group.add_argument(
                f"--{option}", dest=name, type=int, choices=CHOICES[name], default=default, help=said
            )  # fmt: skip
        else:
            add_number(group, name, option, said, default, LIMITS)


def add_number(
    group: Any,
    name: str,
    option: str,
    what: str,
    default: int | None,
    limits: dict[str, tuple[float, float]],
) -> None:
    """An option with a whole number within its limits."""
    low, high = limits[name]
    kind = whole(int(low), int(high))
    group.add_argument(f"--{option}", dest=name, type=kind, default=default, help=what)


def field_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The values of these options."""
    return {name: getattr(arguments, name) for name, *_ in _OPTIONS}
