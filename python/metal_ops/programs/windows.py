"""Memory of the devices of one machine that each worker writes a part of and all read, so that their messages to
each other do not have to go through the host."""

from __future__ import annotations

import ctypes
import sys
from typing import NamedTuple

import tensorflow as tf

from metal_ops import device as metal_device

from .workers import Workers

_NAME_BYTES = 64  # of hostmetal.h


class Window(NamedTuple):
    """Where kernels of this worker's device find the workers' messages.

    Attributes:
      begins: Addresses of every worker's part, by its rank. All of it begins as zeros.
    """

    begins: list[int]


def open_window(workers: Workers, device: str, size: int) -> Window | None:
    """Makes a window; all workers call it.

    Args:
      workers: All of this run.
      device: TensorFlow's name of this worker's device.
      size: Bytes of a worker's part.

    Returns:
      The window; None where they are not of one machine, or a device cannot share memory with another's: GPUs without a
      way to each other, and all that is not this library's device on Linux.
    """
    if not workers.exchange.one_machine:
        return None
    runtime = _runtime(device)
    number = tf.DeviceSpec.from_string(device).device_index or 0
    name, own = ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_uint64()
    shared = runtime is not None and runtime.hostmetal_share_memory(
        number, size, name, ctypes.byref(own)
    )
    with workers.noticing():
        said = workers.gather(tf.constant([[int(shared), *name.raw]])).numpy().tolist()
    begins, whole = [], True
    for rank, (there, *other) in enumerate(said):
        begin = ctypes.c_uint64(own.value)
        if rank != workers.rank and runtime is not None and there:
            there = runtime.hostmetal_open_memory(number, bytes(other), ctypes.byref(begin))
        whole = whole and bool(there)
        begins.append(begin.value)
    if not workers.all(whole):
        return None
    return Window(begins)


def _runtime(device: str) -> ctypes.CDLL | None:
    if tf.DeviceSpec.from_string(device).device_type != "GPU" or sys.platform != "linux":
        return None
    if not metal_device.list():
        return None
    runtime = ctypes.CDLL(str(metal_device.HOSTMETAL))
    number, address = ctypes.c_ulong, ctypes.POINTER(ctypes.c_uint64)
    runtime.hostmetal_share_memory.argtypes = [number, number, ctypes.c_char_p, address]
    runtime.hostmetal_open_memory.argtypes = [number, ctypes.c_char_p, address]
    for function in (runtime.hostmetal_share_memory, runtime.hostmetal_open_memory):
        function.restype = ctypes.c_bool
    return runtime
