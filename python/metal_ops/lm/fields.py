"""Values of a model's configuration by name, each of the type and within the range that is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metal_ops.programs.errors import ProgramError, short
from metal_ops.programs.reading import is_number


class WeightsError(ProgramError):
    """A model's file that cannot be read, or holds another kind of model."""


class Fields:
    """Values by name.

    Args:
      where: The beginning of sentences: the file, and the object in it.
      values: The file's values.
    """

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where, self.values = where, values

    def number(
        self, name: str, default: Any = None, least: float = 1, most: float = 1 << 24
    ) -> Any:
        """A finite number; null is the default."""
        value = self.values.get(name)
        value = default if value is None else value
        if not (is_number(value) and least <= value <= most):
            raise WeightsError(
                f"{self.where}: '{name}' must be a number from {least:g} to {most:g}, got {short(value)}."
            )
        return value

    def optional(self, name: str, least: float = 1, most: float = 1 << 24) -> Any:
        """The same, or None where the file has none."""
        return None if self.values.get(name) is None else self.number(name, None, least, most)

    def whole(self, name: str, default: Any = None, least: int = 1, most: int = 1 << 24) -> int:
        value = self.number(name, default, least, most)
        if int(value) != value:
            raise WeightsError(
                f"{self.where}: '{name}' must be a whole number, got {short(value)}."
            )
        return int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise WeightsError(f"{self.where}: '{name}' must be true or false, got {short(value)}.")
        return value

    def texts(self, name: str) -> list[str]:
        value = self.values.get(name)
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise WeightsError(
                f"{self.where}: '{name}' must be a list of texts, got {short(value)}."
            )
        return value

    def numbers(self, name: str, length: int) -> list[float]:
        value = self.values.get(name)
        numbers = value if isinstance(value, list) else []
        if len(numbers) != length or not all(is_number(one) and 0 < one < 1e9 for one in numbers):
            raise WeightsError(
                f"{self.where}: '{name}' must be a list of {length} numbers above 0, got {short(value)}."
            )
        return numbers

    def inner(self, name: str) -> Fields:
        """The values of an object inside; of an empty one where there is none."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, dict):
            raise WeightsError(f"{self.where}: '{name}' must be an object, got {short(value)}.")
        return Fields(f"{self.where}: {name}", value or {})

    def one_of(self, name: str, known: tuple[Any, ...], remedy: str) -> Any:
        value = self.values.get(name)
        # True is 1 to Python.
        if not any(type(value) is type(one) and value == one for one in known):
            wanted = " or ".join(repr(x) for x in known if x is not None)
            raise WeightsError(
                f"{self.where}: '{name}' is {short(value)}, expected {wanted}; {remedy}."
            )
        return value

    def refuse_others(self, known: frozenset[str], remedy: str) -> None:
        """Raises WeightsError for a name that is not known, unless its value switches its subject off."""
        for name, value in self.values.items():
            if name not in known and value not in (None, False, "", [], {}):
                raise WeightsError(
                    f"{self.where}: {short(name)} is {short(value)}, which is not known here; {remedy}."
                )
