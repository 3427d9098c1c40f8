"""Arguments of ops, in a process of its own: a crash is one input's, and not the end.

python -m tests.fuzz.arguments cpu|device     # the process: calls in, outcomes out
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import random
import resource
import selectors
import signal
import struct
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, BinaryIO

from . import calls, engine

MOST_MEMORY = 4 << 30  # calls that ask for more are refused by TensorFlow
PATIENCE = 120.0  # seconds of rest without an answer
SLOW = 120  # seconds of processor time, of all threads, for one call


class ArgumentReader:
    """Calls give a result, or an error that is meant for users; never a crash, a wait or another exception."""

    def __init__(self, device: str) -> None:
        self.name = "arguments" if device == "cpu" else "arguments-device"
        self._device = device
        self._process: subprocess.Popen[bytes] | None = None

    def make(self, rng: random.Random) -> calls.Call:
        return calls.make(rng)

    def feed(self, content: calls.Call) -> str:
        process = self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            _send(process.stdin, content)
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                while not selector.select(PATIENCE):
                    if not _has_work(process.pid):
                        self.close()
                        raise engine.Wrong(f"no answer, and no work for {PATIENCE:.0f} s")
            outcome, text = _receive(process.stdout)
        except (EOFError, BrokenPipeError):
            code = process.wait()
            self.close()
            raise engine.Wrong(f"the process ended with {code}") from None
        if outcome == "failed":
            raise engine.Wrong(text)
        if outcome == "no memory":
            self.close()  # TensorFlow crashes at the next large tensor after it had none, stock ops too
        return "refused" if outcome == "no memory" else outcome

    def files(self, content: calls.Call) -> engine.Kept:
        return {
            "call.pickle": pickle.dumps(content),
            "call.txt": repr(content).encode("utf-8", "replace"),
        }

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.arguments", self._device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"},
            )
        return self._process


def _has_work(process: int) -> bool:
    """Whether a thread runs, or would where the machine is not busy with others (Linux)."""
    states = (file.read_text() for file in Path(f"/proc/{process}/task").glob("*/stat"))
    return any(state.rsplit(")", 1)[1].split()[0] in "RD" for state in states)


def _send(file: BinaryIO, message: Any) -> None:
    data = pickle.dumps(message)
    file.write(struct.pack("<I", len(data)) + data)
    file.flush()


def _receive(file: BinaryIO) -> Any:
    head = file.read(4)
    if len(head) < 4:
        raise EOFError
    return pickle.loads(file.read(struct.unpack("<I", head)[0]))


# ---- the process ----------------------------------------------------------------------------------------------------


_VARIABLES: list[Any] = []


def _made(value: Any) -> Any:
    """The TensorFlow object that a description stands for."""
    import keras
    import tensorflow as tf

    import metal_ops

    if isinstance(value, list):
        return [_made(item) for item in value]
    if not isinstance(value, calls.Special):
        return value
    kind, of = value.kind, value.value
    if kind in ("variable", "handle"):
        variable = tf.Variable(_made(of))
        _VARIABLES.append(variable)  # whose handle points to nothing once it is gone
        return variable if kind == "variable" else variable.handle
    if kind == "constant":
        return tf.constant(of)
    if kind == "cast":
        return tf.cast(tf.constant(of[0]), of[1])
    if kind == "dtype":
        return tf.as_dtype(of)
    if kind == "quantized":
        return metal_ops.QuantizedWeights(**of)
    if kind == "grid":
        return metal_ops.HashGrid(**{"n_dims": 3, **of})
    return {
        "ragged": lambda: tf.ragged.constant([[1.0], [2.0, 3.0]]),
        "sparse": lambda: tf.sparse.from_dense([[1.0, 0.0]]),
        "slices": lambda: tf.IndexedSlices(tf.ones([1, 3]), tf.constant([0]), tf.constant([7, 3])),
        "keras": lambda: keras.KerasTensor([7, 3]),
        "unknown": lambda: object(),
        "crash": lambda: ctypes.string_at(0),  # of a test
        "object": lambda: type("Thing", (), {"shape": (7, 3), "dtype": "float32"})(),
        "set": lambda: {1, 2},
    }[kind]()


def _call(call: calls.Call) -> str:
    import tensorflow as tf

    import metal_ops
    from metal_ops import raw_ops

    where, name, arguments, with_gradient, in_function = call
    meant = (
        TypeError,
        ValueError,
        tf.errors.InvalidArgumentError,
        tf.errors.ResourceExhaustedError,
    )
    meant += (tf.errors.UnimplementedError, tf.errors.NotFoundError, LookupError)
    _VARIABLES.clear()
    try:
        given = {key: _made(value) for key, value in arguments.items()}
    except Exception:
        return "no arguments"  # TensorFlow or HashGrid refuses to make them
    function = getattr(metal_ops if where == "public" else raw_ops, name)

    def run() -> Any:
        if not with_gradient:
            return function(**given)
        tensors = {
            key: tf.convert_to_tensor(value)
            for key, value in given.items()
            if type(value).__module__ == "numpy"
        }
        with tf.GradientTape() as tape:
            tape.watch(list(tensors.values()))
            result = function(**{**given, **tensors})
        floats = [r for r in tf.nest.flatten(result) if tf.is_tensor(r) and r.dtype.is_floating]
        return result, tape.gradient(floats, list(tensors.values()))

    try:
        result = tf.function(run, autograph=False)() if in_function else run()
        for tensor in tf.nest.flatten(result):
            if tf.is_tensor(tensor) and tensor.dtype != tf.resource:
                tensor.numpy()
    except tf.errors.ResourceExhaustedError:
        return "no memory"
    except AssertionError as error:
        # TensorFlow's words for an eager tensor of another dtype than a raw op in a function has, its own ops too.
        if where == "raw" and in_function and str(error) == "Unreachable":
            return "refused"
        raise
    except meant as error:
        if isinstance(error, KeyError | IndexError | UnicodeError):
            raise
        return "refused"
    return "accepted"


def main() -> None:
    out, sys.stdout = sys.stdout.buffer, sys.stderr
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    faulthandler.enable()
    import tensorflow as tf

    import metal_ops

    where = "CPU:0"
    if sys.argv[1] == "device":
        metal_ops.device.load()
        where = "GPU:0"
    tf.config.threading.set_intra_op_parallelism_threads(2)
    tf.get_logger().setLevel("ERROR")
    with tf.device(where):
        while True:
            try:
                call = _receive(sys.stdin.buffer)
            except EOFError:
                return
            signal.setitimer(signal.ITIMER_PROF, SLOW)  # which ends the process
            try:
                answer = _call(call), ""
            except Exception:  # whatever it is: the parent counts and keeps it
                answer = "failed", traceback.format_exc()
            _send(out, answer)


if __name__ == "__main__":
    main()
