"""A package's manifest, checked field by field: a file may come from anywhere."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops.package import container
from metal_ops.package.container import File
from metal_ops.package.errors import PackageError
from metal_ops.package.signature import Spec, build
from metal_ops.programs.errors import short

GRAPH, WEIGHTS, FUSION = "graph.pb", "weights.bin", "fusion.json"
DEVICES = ("CPU", "METAL")
MAX_TEXT = 1000
_TEXTS = ("metal_ops", "tensorflow", "platform", "function")


def check(file: File) -> None:
    """Raises PackageError unless the manifest is one of this version, and fits the file's members."""
    manifest = file.manifest
    version = manifest.get("version")
    if isinstance(version, int) and version > container.VERSION:
        raise PackageError(
            f"{file.path}: has format {version}, and this metal_ops reads up to {container.VERSION}; update metal_ops "
            f"(it was saved by {short(manifest.get('metal_ops'))})."
        )
    try:
        if version != 1:
            raise ValueError("version")
        for name in _TEXTS:
            _require(isinstance(manifest[name], str) and len(manifest[name]) < MAX_TEXT, name)
        _require(manifest["device"] in DEVICES, "device")
        for name, member in manifest["members"].items():
            _require(isinstance(name, str) and _whole(member["size"]), "members")
            _require(isinstance(member["sha256"], str), "members")
            _require(len(file.member(name)) == member["size"], "members")
        _require(GRAPH in manifest["members"] and WEIGHTS in manifest["members"], "members")
        unknown = set(file.names()) - set(manifest["members"]) - {container.MANIFEST}
        _require(not unknown, "members")
        for kind in ("inputs", "outputs"):
            for entry in manifest[kind]:
                spec_of(entry)
        size = manifest["members"][WEIGHTS]["size"]
        for entry in manifest["weights"]:
            spec = spec_of(entry)
            dtype = tf.as_dtype(spec.dtype)
            _require(spec.shape is not None and None not in spec.shape, "weights")
            begin = entry["offset"]
            _require(_whole(begin) and begin % container.ALIGNMENT == 0, "weights")
            _require(dtype.size > 0 and begin + spec.bytes <= size, "weights")
            _require(isinstance(entry["device"], str), "weights")
        for entry in manifest["shaders"]:
            _require(entry["member"] in manifest["members"], "shaders")
            _require(all(isinstance(f, str) for f in entry["functions"]), "shaders")
            _require(all(isinstance(t, str) for t in entry["targets"]), "shaders")
        _require(isinstance(manifest["stateful"], bool), "stateful")
        for op, count in manifest["ops"].items():
            _require(isinstance(op, str) and _whole(count), "ops")
        build(manifest["result"], manifest["outputs"])
    except PackageError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise PackageError(
            f"{file.path}: {container.MANIFEST} is damaged ({short(str(error))}); copy or save the file again."
        ) from None


def spec_of(entry: dict[str, Any]) -> Spec:
    """An entry of "inputs", "outputs" or "weights".

    Raises:
      ValueError: It is none.
    """
    shape = entry["shape"]
    if shape is not None:
        _require(all(size is None or _whole(size) for size in shape), "shape")
        _require(len(shape) <= 254, "shape")
        shape = tuple(shape)
    _require(isinstance(entry["name"], str), "name")
    _require(isinstance(entry["dtype"], str), "dtype")
    return Spec(entry["name"], tf.as_dtype(entry["dtype"]).name, shape)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)
