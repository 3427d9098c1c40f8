"""The result of readers of model files: floats, or codes in blocks; and safetensors files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metal_ops.programs.errors import printable, short
from metal_ops.programs.reading import open_file, read_json

from .fields import WeightsError

INDEX = "model.safetensors.index.json"
_TYPES = ("F32", "F16", "BF16", "F64")
# Weights in files that are not read, by the ends of their names, and the programs that convert them.
_CONVERTED = (
    "make safetensors of it by transformers: "
    "AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder)"
)
_OTHERS = {
    "pytorch_model*.bin": _CONVERTED,
    "tf_model*.h5": _CONVERTED,
    "flax_model*.msgpack": _CONVERTED,
    "consolidated*": "get the same model's model*.safetensors and config.json, as transformers has them",
    "adapter_model*": "an adapter, give the folder of its base, or join both by peft: "
    "model.merge_and_unload().save_pretrained(folder)",
    "*.pt": _CONVERTED,
    "*.pth": _CONVERTED,
    "*.onnx*": "take the folder that it was exported from",
}


class Packed(NamedTuple):
    """A quantized matrix as `QuantizedWeights` has it.

    Attributes:
      codes: uint8 [outputs, bytes].
      scales: float16 or float32 [outputs, blocks].
      minima: The same, or None.
      bits: Bits of a code.
      block: Weights that share a scale.
    """

    codes: np.ndarray
    scales: np.ndarray
    minima: np.ndarray | None
    bits: int
    block: int

    def times(self, factor: float) -> Packed:
        """The matrix times a number."""
        minima = None if self.minima is None else self.minima.astype(np.float32) * factor
        return self._replace(scales=self.scales.astype(np.float32) * factor, minima=minima)


def missing(package: str, version: str, files: str) -> WeightsError:
    """The error where a package is not installed."""
    return WeightsError(
        f"{files} are read by the package {package}, which is not installed; run `pip install {package}=={version}`."
    )


class SafeTensors:
    """The tensors of one or several .safetensors files, mapped.

    Attributes:
      path: The first file.
      shapes: Shapes of the tensors by name.
    """

    def __init__(self, files: dict[Path, list[str] | None]) -> None:
        """Args:
        files: And the tensors that are read of each; None: all.
        """
        self.path = next(iter(files))
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, Any] = {}
        for path, names in files.items():
            self._open(path, names)

    def _open(self, path: Path, wanted: list[str] | None) -> None:
        try:
            import ml_dtypes  # noqa: F401  # teaches NumPy bfloat16, by which safetensors asks for it
            import safetensors
        except ImportError:
            raise missing("safetensors", "0.8.0", "safetensors files") from None
        with open_file(path, WeightsError, "model"):
            pass  # no pipe or device, which the package would wait for
        try:
            file = safetensors.safe_open(str(path), framework="numpy")
            names = set(file.keys())
        except Exception as why:  # its own class, and the system's message
            words = printable(str(why)).rstrip(".")
            words = words if len(words) < 200 else f"{words[:200]}..."
            raise WeightsError(
                f"{path}: not a readable safetensors file: {words}; get it again."
            ) from None
        for name in sorted(names) if wanted is None else wanted:
            if name not in names:
                raise WeightsError(
                    f"{path}: tensor {short(name)} is missing, which {INDEX} says is there; get both again."
                )
            if name in self.shapes:
                raise WeightsError(f"{path}: tensor {short(name)} is in another file, too.")
            entry = file.get_slice(name)
            if entry.get_dtype() not in _TYPES:
                raise WeightsError(
                    f"{path}: tensor {short(name)} has type {entry.get_dtype()}, expected one of "
                    f"{', '.join(_TYPES)}; convert it."
                )
            self.shapes[name] = tuple(entry.get_shape())
            self._files[name] = file

    def floats(self, name: str) -> np.ndarray:
        """A tensor as float32."""
        if not math.prod(self.shapes[name]):  # which the package cannot map
            return np.zeros(self.shapes[name], np.float32)
        return self._files[name].get_tensor(name).astype(np.float32)

    packed = floats

    def n_bytes(self, name: str) -> int:
        """The bytes of `packed` in memory."""
        return 4 * math.prod(self.shapes[name])


def files_of(folder: Path, given: Path | None = None) -> dict[Path, list[str] | None]:
    """The .safetensors of a folder that are the model, as transformers chooses them.

    That is model.safetensors, or else the files that the index names, each with its tensors there; or else all that
    are called model*.safetensors. Adapters and other formats' files beside them are not read.

    Args:
      folder: Where they lie.
      given: The file that was asked for: it alone, unless it is a part that the index names.

    Raises:
      WeightsError: There are none, or the index is none.
    """
    whole = folder / "model.safetensors"
    if whole.is_file() and given in (None, whole):
        return {whole: None}
    if (folder / INDEX).is_file():
        found = _indexed(folder)
        if given is None or given in found:
            return found
    if given is not None:
        return {given: None}
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise WeightsError(
            f"{folder}: holds no .safetensors of a model (model.safetensors, or those that {INDEX} names); "
            f"{_how_to_get_them(folder)}."
        )
    return dict.fromkeys(files)


def _how_to_get_them(folder: Path) -> str:
    """The remedy for a folder whose weights are in other files, or not there."""
    other = next(iter(sorted(folder.glob("*.gguf"))), None)
    if other is not None:
        return f"give {short(other.name)} in it"
    for pattern, remedy in _OTHERS.items():
        other = next(iter(sorted(folder.glob(pattern))), None)
        if other is not None:
            return f"{short(other.name)} is not read: {remedy}"
    return "give the folder of a model"


def other_format(path: Path) -> str:
    """The remedy for a file of weights that is not read; empty for other files."""
    for pattern, remedy in {**_OTHERS, "*.bin": _CONVERTED}.items():
        if path.match(pattern):
            return f"; {remedy}"
    return ""


def _indexed(folder: Path) -> dict[Path, list[str] | None]:
    where = folder / INDEX
    values = read_json(where, WeightsError)
    names = values.get("weight_map") if isinstance(values, dict) else None
    if not isinstance(names, dict) or not names:
        raise WeightsError(
            f"{where}: 'weight_map' must name a file for each tensor, got {short(names)}."
        )
    found: dict[Path, list[str] | None] = {}
    for tensor, name in names.items():
        # A path would lead out of the folder.
        if (
            not isinstance(name, str)
            or Path(name).name != name
            or not name.endswith(".safetensors")
        ):
            raise WeightsError(
                f"{where}: 'weight_map' names {short(name)} for {short(tensor)}, expected a .safetensors beside it."
            )
        listed = found.setdefault(folder / name, [])
        assert listed is not None
        listed.append(tensor)
    return found
