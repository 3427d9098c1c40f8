"""The METAL "GPU": loads the device that runs this library's Metal shaders, once, and reports it.

The device is `libmetal_device.so`, a TensorFlow plugin, on Linux on top of hostmetal. Nothing is loaded unless asked:
call `load()`, or set `METAL_OPS_DEVICE=1` before importing metal_ops. On macOS the GPU is tensorflow-metal's up to
TensorFlow 2.19, the last one that it loads into; without it `METAL_OPS_DEVICE=1` asks for this library's. From 2.20 on
it is this library's, and TensorFlow finds it by itself where a wheel is installed.

Environment variables, read when the device is loaded:

| variable | meaning |
|---|---|
| `METAL_OPS_DEVICE=1` | load the device when metal_ops is imported |
| `METAL_OPS_DEVICE_MEMORY_MB=n` | how much memory tensors may take; then ops raise `ResourceExhaustedError` |
| `METAL_OPS_DEVICE_BATCH=n` | kernels in one command buffer before it is committed, 2 as in tensorflow-metal |
| `METAL_OPS_DEVICE_SYNC=1` | wait for every op, so that a failure is reported by the op that caused it |
| `METAL_OPS_LABELS=1` | encoders are labelled with op and node, launches with the shader; errors name the node |
| `METAL_OPS_DEVICE_SCRIBBLE=1` | overwrite freed memory, so that a use after the end shows as NaN |
| `METAL_OPS_DEVICE_FALLBACK=warn` | tell ops that the device has no kernel for; `error`: they are a `DeviceError` |
| `HOSTMETAL_DEVICES=n` | the processor as n devices, GPU:0 and on |
| `METAL_DEVICE_WRAPPER_TYPE=1` | Apple's validation switch: bounds checks in shaders, and both of the above |

Processes: threads do not survive a fork, so in a process that is forked after the device was used, every use of the
device is an error that says so, and so is the call of any `tf.function`, for which TensorFlow would wait forever with
any device. Start such a process by `multiprocessing.get_context("spawn")` or "forkserver"; CUDA wants the same.
Forked processes that do other work, as a pool that reads files, are not touched.

Keras: `Model.compile(jit_compile="auto")`, the default, picks XLA as soon as there is a GPU, and METAL has no XLA.
Keras leaves it out on Macs, and where this device is loaded: `jit_compile=True` is a warning. LSTM and GRU run their
whole sequences in one op, as with cuDNN, where Keras would ask for cuDNN, and for any mask; `use_cudnn=False` has the
steps written out.
"""

from __future__ import annotations

import builtins
import ctypes
import dataclasses
import functools
import importlib.metadata
import os
import platform
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from metal_ops import _fallback, _log_level
from metal_ops._keras_on_metal import teach_keras
from metal_ops._library import build_info
from metal_ops._placement import Copy, Report, report
from metal_ops._version import TENSORFLOW_METAL_UNTIL, TENSORFLOW_RELEASES

__all__ = [
    "Copy",
    "Device",
    "DeviceError",
    "Report",
    "clear_error",
    "list",
    "load",
    "load_if_asked",
    "memory",
    "report",
    "synchronize",
]

_HERE = Path(__file__).resolve().parent
PLUGIN = _HERE / "libmetal_device.so"
# Where TensorFlow finds plugins by itself: in macOS' wheels for releases that tensorflow-metal does not load into.
FOUND_PLUGIN = _HERE.parent / "tensorflow-plugins" / "libmetal_device.dylib"
KERNELS = _HERE / "_metal_kernels.so"
HOSTMETAL = _HERE / "libhostmetal.so"
INSTALL = "`pip install 'tensorflow-metal-ops[metal]'`, or `make metal` in the source checkout"
# From the system and not in the wheel: GNUstep stands on ICU, GnuTLS and others, 40 MB of libraries.
APT_PACKAGES = "libgnustep-base1.28 libobjc4"
_lock = threading.Lock()
_loaded: tuple[Device, ...] = ()


class DeviceError(RuntimeError):
    """There is no METAL device, or it cannot be loaded into this process. The message names the remedy."""


@dataclasses.dataclass(frozen=True)
class Device:
    """One METAL device, as TensorFlow sees it.

    Attributes:
      name: TensorFlow's name, for `tf.device`: "GPU:0".
      hardware: The Metal runtime's name of it.
      memory_bytes: How much memory tensors may take; 0 where the plugin does not say (tensorflow-metal).
      plugin: The plugin's file, None if it is tensorflow-metal's.
      kernels: The file with this library's Metal kernels, None if it is not built.
      has_own_memory: Whether tensors lie in memory that the host does not share: an NVIDIA GPU.
    """

    name: str
    hardware: str
    memory_bytes: int
    plugin: Path | None
    kernels: Path | None
    has_own_memory: bool = False

    def __str__(self) -> str:
        memory = f", {self.memory_bytes / 2**30:.1f} GiB" if self.memory_bytes else ""
        kernels = "with" if self.kernels else "without"
        return (
            f"{self.name}: METAL device '{self.hardware}'{memory}, {kernels} this library's kernels"
        )


def load(kernels: bool = True) -> Device:
    """Loads the METAL device and this library's kernels for it. A second call returns the result of the first one.

    TensorFlow makes its devices when the first op runs, so call this before.

    Args:
      kernels: False leaves this library's kernels out, for processes that load another library with ops of the same
        names. A later call with True adds them.

    Returns:
      The device that was found; `str()` of it is one sentence. With several (`HOSTMETAL_DEVICES`), the first: `list()`
      has all.

    Raises:
      DeviceError: The plugin is not built; TensorFlow is a CUDA build, of another release, has another GPU plugin or
        has made its devices already; or the plugin declined.

    Example:
      >>> import metal_ops
      >>> print(metal_ops.device.load())
      GPU:0: METAL device '...', ... GiB, with this library's kernels
    """
    global _loaded
    with _lock:
        if not _loaded:
            _loaded = _load_macos() if sys.platform == "darwin" else _load_own()
            _fallback.install(os.environ.get("METAL_OPS_DEVICE_FALLBACK", ""), DeviceError)
        if kernels and _loaded[0].kernels is None:
            loaded = _load_kernels()
            _loaded = tuple(dataclasses.replace(device, kernels=loaded) for device in _loaded)
        return _loaded[0]


def list() -> builtins.list[Device]:  # noqa: A001 - reads as metal_ops.device.list()
    """The METAL devices loaded so far.

    Returns:
      The `Device`s after `load()`, none before: one, or as many as `HOSTMETAL_DEVICES` asks for.

    Example:
      >>> [device.name for device in metal_ops.device.list()]
      ['GPU:0']
    """
    return [*_loaded]


def load_if_asked() -> Device | None:
    """Loads the device if the environment has `METAL_OPS_DEVICE=1`; `import metal_ops` calls it.

    Returns:
      The `Device`, or None if it was not asked for.

    Raises:
      DeviceError: As `load()`; also for a value that is neither 0 nor 1.

    Example:
      >>> os.environ["METAL_OPS_DEVICE"] = "1"
      >>> metal_ops.device.load_if_asked().name
      'GPU:0'
    """
    asked = os.environ.get("METAL_OPS_DEVICE", "")
    if asked in ("", "0"):
        return None
    if asked != "1":
        raise DeviceError(
            f"metal_ops: METAL_OPS_DEVICE is {asked!r}, expected 1 (load the device) or 0."
        )
    return load()


def synchronize() -> None:
    """Waits for all work on the device, or on all of them.

    Raises:
      DeviceError: No device is loaded, or work on it failed; `clear_error()` forgets the failure.

    Example:
      >>> with tf.device("GPU:0"):
      ...     y = metal_ops.zero_out(tf.ones([3]))
      >>> metal_ops.device.synchronize()  # now the shader has run
    """
    library = _plugin()
    library.metal_device_synchronize()
    failure = library.metal_device_peek_error()
    if failure:
        raise DeviceError(f"metal_ops: work on the METAL device failed: {failure.decode()}")


def memory(device: str = "GPU:0") -> dict[str, int]:
    """Bytes of device memory: `in_use` by tensors and running work, the `peak` of that, and the `limit`.

    TensorFlow's own `tf.config.experimental.get_memory_info` knows nothing of such a device and says 0.

    Args:
      device: Its name in `list()`.

    Returns:
      The three numbers by name.

    Raises:
      DeviceError: No device is loaded, or none of that name.

    Example:
      >>> memory = metal_ops.device.memory()
      >>> memory["in_use"] <= memory["peak"] <= memory["limit"]
      True
    """
    library = _plugin()
    names = [f"GPU:{i}" for i in range(library.metal_device_count())]
    if device not in names:
        raise DeviceError(f"metal_ops: device is {device!r}, expected one of {', '.join(names)}.")
    ordinal = names.index(device)
    return {
        "in_use": library.metal_device_memory_in_use(ordinal),
        "peak": library.metal_device_memory_peak(ordinal),
        "limit": library.metal_device_memory_limit(ordinal),
    }


def clear_error() -> str | None:
    """Forgets a failure of the device and returns its message, None if there is none.

    A shader that faults leaves garbage where its results should be, and TensorFlow cannot tell which tensors those are.
    So every copy from the device and every op of this library fails from then on, until this is called. Tensors
    written by the failed work, variables too, have to be computed or assigned anew.

    Returns:
      The message of the failure, or None.

    Raises:
      DeviceError: No device is loaded.

    Example:
      >>> print(metal_ops.device.clear_error())
      None
    """
    failure = _plugin().metal_device_take_error()
    return failure.decode() if failure else None


# ---- this library's device -------------------------------------------------------------------------------------------


def _load_own() -> tuple[Device, ...]:
    plugin = _plugin_file()
    if not plugin.exists():
        raise DeviceError(f"metal_ops: the device plugin {plugin} is missing; {INSTALL}.")
    if sys.platform != "darwin":
        _check_objective_c()
    import tensorflow as tf

    _log_level.follow(tf.sysconfig.get_lib())
    if not _found_by_tensorflow():
        _check_tensorflow(tf)
        # The only way to have TensorFlow look for devices again after they have been listed; no public name exists.
        from tensorflow.python.framework import load_library

        load_library.load_pluggable_device_library(str(plugin))
    library = _plugin()
    why_not = library.metal_device_why_not()
    if why_not:
        raise DeviceError(f"metal_ops: the METAL device declined: {why_not.decode()}.")
    os.register_at_fork(after_in_child=functools.partial(_refuse_functions_if_forked, tf))
    teach_keras()
    return tuple(
        Device(
            name=f"GPU:{i}",
            hardware=library.metal_device_name(i).decode(),
            memory_bytes=library.metal_device_memory_limit(i),
            plugin=plugin,
            kernels=None,
            has_own_memory=library.metal_device_has_own_memory(i),
        )
        for i in range(library.metal_device_count())
    )


def _plugin_file() -> Path:
    return FOUND_PLUGIN if sys.platform == "darwin" and FOUND_PLUGIN.exists() else PLUGIN


def _found_by_tensorflow() -> bool:
    """Whether it is a plugin already: of tensorflow-plugins, or of TF_PLUGGABLE_DEVICE_LIBRARY_PATH.

    Raises:
      DeviceError: It is in the process, but not as a plugin, or it is a copy.
    """
    plugin = _plugin_file()
    if not any(map(_is_mapped, (str(plugin), PLUGIN.name))):  # the second finds copies, by soname
        return False
    if _is_mapped(str(plugin)):
        library = _plugin()
        if library.metal_device_why_not() or library.metal_device_count():
            return True
    raise DeviceError(
        f"metal_ops: {PLUGIN.name} was loaded into this process before, by something else than "
        "metal_ops.device.load(), and TensorFlow ends the process when a plugin is loaded twice; "
        "remove the other load (a copy in site-packages/tensorflow-plugins?)."
    )


def _refuse_functions_if_forked(tf: ModuleType) -> None:
    """In a forked process TensorFlow would wait for threads that its executor does not have there, on the CPU too."""
    reason = _plugin().metal_device_why_forked()
    if not reason:
        return  # the device had not been used
    function = type(tf.function(lambda: None))
    call = function.__call__

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly() and not tf.config.functions_run_eagerly():
            raise DeviceError(
                f"metal_ops: a tf.function cannot run here, on any device. {reason.decode()}."
            )
        return call(self, *args, **kwargs)

    function.__call__ = refuse


def _check_objective_c() -> None:
    try:
        ctypes.CDLL(str(HOSTMETAL))
    except OSError as error:
        missing = str(error).split(":")[0]
        if not missing.startswith(("libgnustep", "libobjc")):
            raise DeviceError(
                f"metal_ops: the Metal runtime {HOSTMETAL} cannot be loaded ({error}); {INSTALL}."
            ) from None
        raise DeviceError(
            f"metal_ops: {missing} is missing, which Metal on Linux needs; on Debian 12 "
            f"`sudo apt-get install {APT_PACKAGES}`, on a system with another release of GNUstep build from source: "
            "`make metal` in the checkout."
        ) from None


def _check_tensorflow(tf: ModuleType) -> None:
    release = ".".join(build_info()["tensorflow"].split(".")[:2])
    if not tf.__version__.startswith(f"{release}."):
        raise DeviceError(
            f"metal_ops: the METAL device is built for TensorFlow {release}, but TensorFlow "
            f"{tf.__version__} is installed; `pip install 'tensorflow-cpu~={release}.0'`."
        )
    build = tf.sysconfig.get_build_info()
    for name in ("CUDA", "ROCm"):
        if build.get(f"is_{name.lower()}_build"):
            raise DeviceError(
                f"metal_ops: this TensorFlow is a {name} build, whose own GPU kernels would be run on the METAL "
                f"device's memory; `pip uninstall tensorflow` and `pip install tensorflow-cpu=={tf.__version__}`."
            )
    others = tf.config.list_physical_devices("GPU")
    if others:
        raise DeviceError(
            f"metal_ops: TensorFlow already has {others[0].name} from another plugin; a process can have one kind "
            "of GPU only. Remove the other plugin."
        )
    if _devices_are_made(tf):
        raise DeviceError(
            "metal_ops: TensorFlow has made its devices already (an op has run), and takes no further ones; "
            "call metal_ops.device.load() before the first op, or set METAL_OPS_DEVICE=1."
        )


def _devices_are_made(tf: ModuleType) -> bool:
    # Settings that are fixed once the devices exist refuse a new value.
    threading_config = tf.config.threading
    now = threading_config.get_inter_op_parallelism_threads()
    try:
        threading_config.set_inter_op_parallelism_threads(now + 1)
    except RuntimeError:
        return True
    threading_config.set_inter_op_parallelism_threads(now)
    return False


def _is_mapped(library: str) -> bool:
    try:
        ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return True


@functools.cache
def _open_plugin() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_plugin_file()), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    for name in ("why_not", "why_forked", "peek_error", "take_error"):
        getattr(library, f"metal_device_{name}").restype = ctypes.c_char_p
    of_one: dict[str, Any] = {
        "name": ctypes.c_char_p,
        "has_own_memory": ctypes.c_bool,
        "memory_limit": ctypes.c_int64,
        "memory_in_use": ctypes.c_int64,
        "memory_peak": ctypes.c_int64,
    }
    for name, result in of_one.items():
        function = getattr(library, f"metal_device_{name}")
        function.argtypes, function.restype = [ctypes.c_uint64], result
    library.metal_device_count.restype = ctypes.c_uint64
    library.metal_device_synchronize.restype = None
    return library


def _plugin() -> ctypes.CDLL:
    try:
        return _open_plugin()
    except OSError:
        raise DeviceError(
            "metal_ops: no METAL device of this library is loaded; call metal_ops.device.load() first."
        ) from None


# ---- macOS ----------------------------------------------------------------------------------------------------------


def _load_macos() -> tuple[Device, ...]:
    from metal_ops.build import flags

    system = platform.mac_ver()[0]
    here = tuple(map(int, f"{system}.0".split(".")[:2]))
    if here[0] < flags.OLDEST_MACOS:
        raise DeviceError(
            f"metal_ops: the Metal kernels want macOS {flags.OLDEST_MACOS}.0 or newer; this is {system}. Update it, or "
            "use the ops on the CPU."
        )
    files = [file for file in (KERNELS, _plugin_file()) if file.exists()]
    for file, built in zip(files, map(flags.macos_built_for, files), strict=True):
        if built and built > here:
            without = " without bfloat16" if here[0] < flags.MACOS_WITH_BFLOAT <= built[0] else ""
            raise DeviceError(
                f"metal_ops: {file.name} is built for macOS {built[0]}.{built[1]} or newer; this is {system}. Build it "
                f"for this one{without}, `make metal MACOS_OF_METAL={here[0]}.0` in the source checkout, update "
                "macOS, or use the ops on the CPU."
            )
    releases = [*TENSORFLOW_RELEASES]
    release = ".".join(build_info()["tensorflow"].split(".")[:2])
    left = releases.index(release) > releases.index(TENSORFLOW_METAL_UNTIL)
    asked = os.environ.get("METAL_OPS_DEVICE") == "1"
    theirs = _tensorflow_metal()
    if theirs and left:
        raise DeviceError(
            f"metal_ops: tensorflow-metal {theirs} is installed, which loads into no TensorFlow after "
            f"{TENSORFLOW_METAL_UNTIL}, and this one, {release}, has this library's device; "
            "`pip uninstall tensorflow-metal`."
        )
    if theirs and asked:
        raise DeviceError(
            f"metal_ops: METAL_OPS_DEVICE=1 asks for this library's device, but tensorflow-metal {theirs} is "
            "installed, and TensorFlow takes one of them; unset METAL_OPS_DEVICE, or `pip uninstall tensorflow-metal`."
        )
    if left or asked:
        return _load_own()
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise DeviceError(
            "metal_ops: TensorFlow has no GPU here; `pip install tensorflow-metal==1.2.0` (Apple silicon), or set "
            "METAL_OPS_DEVICE=1 for this library's own device."
        )
    details = tf.config.experimental.get_device_details(gpus[0])
    return (Device("GPU:0", details.get("device_name", "METAL"), 0, None, None),)


def _tensorflow_metal() -> str:
    """The version of Apple's plugin, "" where it is not installed."""
    try:
        return importlib.metadata.version("tensorflow-metal")
    except importlib.metadata.PackageNotFoundError:
        return ""


# ---- both -----------------------------------------------------------------------------------------------------------


def _load_kernels() -> Path | None:
    """Loads this library's Metal kernels, which register themselves; None if they are not built."""
    if not KERNELS.exists():
        return None
    import tensorflow as tf

    try:
        tf.load_library(str(KERNELS))
    except tf.errors.OpError as error:
        raise DeviceError(
            f"metal_ops: {KERNELS} cannot be loaded into TensorFlow {tf.__version__} ({error.message}); "
            f"{INSTALL}."
        ) from error
    describe = ctypes.CDLL(str(KERNELS), mode=os.RTLD_NOLOAD | os.RTLD_LAZY).metal_kernels_error
    describe.restype = ctypes.c_char_p
    problems = describe().decode().strip()
    if problems:
        raise DeviceError(f"metal_ops: some Metal kernels could not be registered:\n{problems}")
    return KERNELS
