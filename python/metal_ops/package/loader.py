"""`load`: from a package to a function."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from metal_ops import device as devices
from metal_ops._library import _is_registered
from metal_ops._version import __version__
from metal_ops.package import container, manifest, shaders
from metal_ops.package.container import File
from metal_ops.package.errors import PackageError
from metal_ops.package.freeze import each_node
from metal_ops.package.function import Function
from metal_ops.package.manifest import spec_of
from metal_ops.package.signature import Spec, build, shape_text

_ON_DEVICE = {"CPU": "/device:CPU:0", "METAL": "/device:GPU:0"}


class Package:
    """A loaded package, called like the function that was saved.

    Attributes:
      name: The function's name.
      inputs: Its arguments, in order.
      outputs: Its results, each with its place in the result.
      device: "CPU" or "METAL".

    Example:
      >>> path = metal_ops.package.save(tf.nn.relu, "relu.mpkg", shapes=[[None, 3]])
      >>> metal_ops.package.load(path)
      <package relu(features: float32[?, 3]) -> result: float32[?, 3], on CPU>
    """

    def __init__(self, path: Path, said: dict[str, Any], device: str, function: Any, weights: Any):
        self.name: str = said["function"]
        self.inputs: list[Spec] = [spec_of(entry) for entry in said["inputs"]]
        self.outputs: list[Spec] = [spec_of(entry) for entry in said["outputs"]]
        self.device = device
        self._result = said["result"]
        self._path, self._function, self._weights = path, function, weights
        self._specs = [
            (spec, tf.as_dtype(spec.dtype), tf.TensorShape(spec.shape)) for spec in self.inputs
        ]

    def __repr__(self) -> str:
        takes, returns = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
        return f"<package {self.name}({takes}) -> {returns}, on {self.device}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function.

        Args:
          *args: Inputs in order; dicts and lists of them as the function took them.
          **kwargs: Inputs by name.

        Returns:
          The function's results, in the same dicts, lists and tuples.

        Raises:
          PackageError: An input is missing, unknown, or of another dtype or shape.

        Example:
          >>> path = metal_ops.package.save(lambda x: x + 1.0, "plus.mpkg", shapes=[[2]])
          >>> metal_ops.package.load(path)(tf.zeros([2])).numpy().tolist()
          [1.0, 1.0]
        """
        given = self._given([*args], kwargs)
        tensors = [
            self._tensor(value, *spec) for value, spec in zip(given, self._specs, strict=True)
        ]
        return build(self._result, self._function([*tensors, *self._weights]))

    def _given(self, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        names = [spec.name for spec in self.inputs]
        if len(args) == 1 and not kwargs and isinstance(args[0], dict) and set(args[0]) == {*names}:
            args, kwargs = [], args[0]
        if any(isinstance(each, dict | list | tuple) for each in args):
            # As many as there are inputs, and only numbers in them: arrays that are written as lists.
            if len(args) != len(names) or any(_has_tensors(each) for each in args):
                args = tf.nest.flatten(args)
        given = dict(zip(names, args, strict=False))
        takes = f"expected {', '.join(map(str, self.inputs)) or 'no inputs'}"
        if len(args) > len(names):
            raise PackageError(f"[{self.name}] {takes}, got {len(args)} inputs.")
        for name, value in kwargs.items():
            if name not in names:
                raise PackageError(f"[{self.name}] there is no input {name!r}; {takes}.")
            if name in given:
                raise PackageError(f"[{self.name}] {name}: is given twice, by place and by name.")
            given[name] = value
        missing = [name for name in names if name not in given]
        if missing:
            raise PackageError(f"[{self.name}] {missing[0]}: is missing; {takes}.")
        return [given[name] for name in names]

    def _tensor(self, value: Any, spec: Spec, dtype: tf.DType, shape: tf.TensorShape) -> Any:
        if not tf.is_tensor(value) and not isinstance(value, np.ndarray):
            try:
                value = tf.convert_to_tensor(value, dtype)
            except (TypeError, ValueError) as error:
                raise PackageError(
                    f"[{self.name}] {spec.name}: expected {spec.dtype}{shape_text(spec.shape)} ({error})."
                ) from None
        got = tf.as_dtype(value.dtype)
        if got != dtype:
            raise PackageError(
                f"[{self.name}] {spec.name}: expected dtype {spec.dtype}, got {got.name}; convert it with "
                f"tf.cast(..., tf.{spec.dtype})."
            )
        if not shape.is_compatible_with(value.shape):
            raise PackageError(
                f"[{self.name}] {spec.name}: expected shape {shape_text(spec.shape)}, got "
                f"{shape_text(tf.TensorShape(value.shape))}; sizes that are not '?' were fixed when it was saved."
            )
        return tf.convert_to_tensor(value)


def _has_tensors(value: Any) -> bool:
    """Whether a dict, or a list with tensors in it, and none that is a tensor itself."""
    if not isinstance(value, list | tuple):
        return isinstance(value, dict)
    return any(tf.is_tensor(one) or isinstance(one, np.ndarray) for one in tf.nest.flatten(value))


def load(
    path: str | Path, device: str | None = None, *, verify: bool = True, warm: bool = True
) -> Package:
    """Loads a package. Nothing is traced or compiled; weights are mapped, not read, where the device is the CPU.

    The file must not be changed in place while the package is in use; saving another one over it is fine. A package
    is code, as a SavedModel is: hashes tell damage, not malice.

    Args:
      path: The file that `save` wrote.
      device: "CPU" or "METAL"; None for the device it was saved for. Packages saved for METAL run on the CPU too.
      verify: Whether to hold every member against its hash. False leaves out reading the weights.
      warm: Whether to run the function once, on zeros, so that the first call takes as long as later ones. Not done
        with functions that print, write or draw random numbers, and without effect where zeros are no input.

    Returns:
      A function with `inputs` and `outputs`.

    Raises:
      PackageError: The file is no package, damaged, of a newer format, of another minor release of TensorFlow, for
        another platform or for a device that is not here.

    Example:
      >>> path = metal_ops.package.save(tf.nn.relu, "relu.mpkg", shapes=[[None]])
      >>> relu = metal_ops.package.load(path)
      >>> relu.inputs[0].shape, relu(tf.constant([-1.0, 1.0])).numpy().tolist()
      ((None,), [0.0, 1.0])
    """
    file = container.open_file(Path(path))
    manifest.check(file)
    said = file.manifest
    device = _fitting(file, device)
    unequal: list[PackageError] = []
    # The weights' hash is computed while the graph is imported.
    checking = threading.Thread(target=_check, args=(file, manifest.WEIGHTS, unequal))
    if verify:
        for name in said["members"]:
            if name != manifest.WEIGHTS:
                file.check(name)
        checking.start()
    try:
        function = _function(file, device)
        weights = _weights(file, device)
    finally:
        if verify:
            checking.join()
    if unequal:
        raise unequal[0]
    package = Package(file.path, said, device, function, weights)
    if warm and not said["stateful"]:
        _warm(package)
    return package


def _check(file: File, name: str, unequal: list[PackageError]) -> None:
    try:
        file.check(name)
    except PackageError as error:
        unequal.append(error)


def _fitting(file: File, device: str | None) -> str:
    said = file.manifest
    if device not in (None, *_ON_DEVICE):
        raise PackageError(
            f"[package.load] device: expected 'CPU', 'METAL' or None, got {device!r}."
        )
    here, there = _release(tf.__version__), _release(said["tensorflow"])
    if here != there:
        raise PackageError(
            f"{file.path}: was saved with TensorFlow {said['tensorflow']}, and this is {tf.__version__}; fused "
            "ops keep their meaning within a minor release only, so save it again here, or "
            f"`pip install 'tensorflow~={there}.0'`."
        )
    platform = container.platform_name()
    if said["platform"] != platform:
        raise PackageError(
            f"{file.path}: was saved for {said['platform']}, and this is {platform}; save it on such a machine."
        )
    device = device or said["device"]
    if device == "METAL" and said["device"] == "CPU":
        raise PackageError(
            f"{file.path}: was saved for the CPU; save it with device='METAL', or load it with device='CPU'."
        )
    if device == "METAL" and not devices.list():
        raise PackageError(
            f"{file.path}: was saved for the METAL device, which is not loaded; call metal_ops.device.load() before "
            "the first op, or load it with device='CPU'."
        )
    return device


def _release(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _library(file: File, device: str) -> Any:
    try:
        graph = tf.compat.v1.GraphDef.FromString(bytes(file.member(manifest.GRAPH)))
    except Exception:  # protobuf's DecodeError has no public name
        raise PackageError(
            f"{file.path}: its graph is damaged; copy or save the file again."
        ) from None
    texts = {}
    for entry in file.manifest["shaders"]:
        name = entry["member"]
        texts[name] = bytes(file.member(name))
        if "source" not in entry["targets"]:
            shaders.check(file.path, name, texts[name], entry["functions"])
    if texts:
        shaders.put_in(graph, texts, file.path)
    if device == "CPU" and file.manifest["device"] != "CPU":
        for node in each_node(graph):
            node.device = _ON_DEVICE["CPU"] if node.device else ""
    return graph


def _function(file: File, device: str) -> Function:
    said = file.manifest
    library = _library(file, device)
    outputs = [spec_of(entry) for entry in said["outputs"]]
    # TensorFlow has names for its public ops, and looks for others when they are run.
    own = {function.signature.name for function in library.library.function}
    for op in {node.op for node in each_node(library)} - own:
        if not hasattr(tf.raw_ops, op) and not _is_registered(tf, op):
            raise PackageError(
                f"{file.path}: uses the op {op}, which is not here; it was saved by metal_ops {said['metal_ops']}, "
                f"this is {__version__}: update metal_ops, or load the op library that has it first."
            )
    try:
        return Function(
            library,
            _ON_DEVICE[device],
            [tf.as_dtype(spec.dtype) for spec in outputs],
            [tf.TensorShape(spec.shape) for spec in outputs],
        )
    except Exception as error:  # of any kind: TensorFlow's importer has several
        reason = str(error).strip().split("\n")[0]
        raise PackageError(f"{file.path}: its graph cannot be loaded ({reason}).") from None


def _weights(file: File, device: str) -> list[Any]:
    content = np.frombuffer(file.member(manifest.WEIGHTS), np.uint8)
    tf.config.list_logical_devices()  # before it has looked for devices, TensorFlow copies its arguments
    weights = []
    for entry in file.manifest["weights"]:
        spec = spec_of(entry)
        dtype = tf.as_dtype(spec.dtype)
        part = content[entry["offset"] : entry["offset"] + spec.bytes]
        # Through an op, as tf.constant copies. The tensor then is the file's bytes.
        with tf.device("/device:CPU:0"):
            value = tf.raw_ops.Identity(input=part.view(dtype.as_numpy_dtype).reshape(spec.shape))
        if device == "METAL" and "GPU" in entry["device"]:
            with tf.device(_ON_DEVICE["METAL"]):
                value = tf.identity(value)
        weights.append(value)
    return weights


def zeros(inputs: Sequence[Spec]) -> list[Any]:
    """An argument for each input; a size that is open is 1."""
    return [
        tf.zeros([1 if size is None else size for size in spec.shape or ()], spec.dtype)
        for spec in inputs
    ]


def _warm(package: Package) -> None:
    # Zeros may be no input of the function. Then the first call does it.
    with contextlib.suppress(tf.errors.OpError, PackageError):
        package(*zeros(package.inputs))
