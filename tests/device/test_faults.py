"""A shader that faults is an error, of the op that caused it or of the op that would have used its result; never an
abort."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.device.test_loading import ON_GPU, run

pytestmark = [
    pytest.mark.skipif(sys.platform == "darwin", reason="on macOS the device is Apple's"),
    pytest.mark.skipif(ON_GPU, reason="a GPU has no bounds-checked kernels"),
]
HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    from metal_ops.build import builder

    output = tmp_path_factory.mktemp("faults") / "fault.so"
    builder.build_op([HERE / "fault_kernels.mm"], [HERE / "fault.metal"], output)
    return output


PROLOGUE = """
        import sys
        import tensorflow as tf
        from metal_ops import device
        device.load()
        tf.load_library({library!r})
        tf.config.set_soft_device_placement(False)

        def attempt(name, body):
            try:
                print(name, "->", body())
            except (tf.errors.OpError, device.DeviceError) as error:
                print(name, "->", type(error).__name__, str(error).replace(chr(10), " "))

        tf.device("GPU:0").__enter__()
        x = tf.constant([1.0, 2.0, 3.0])
"""


def lines(out: str) -> dict[str, str]:
    return dict(line.split(" -> ", 1) for line in out.splitlines())


def test_the_op_that_caused_it(library):
    out = run(
        PROLOGUE.format(library=str(library))
        + """
        attempt("faulty", lambda: tf.math.special.dawsn(x))
        attempt("next", lambda: (x + 1.0).numpy())
        attempt("function", lambda: tf.function(lambda x: tf.math.special.dawsn(x * 2.0) + 1.0)(x))
        attempt("after", lambda: (x + 2.0).numpy())
        attempt("error", device.clear_error)
        """,
        METAL_DEVICE_WRAPPER_TYPE="1",
    )
    found = lines(out)
    # The op, the shader, the binding and the place are named.
    for name in ("faulty", "function"):
        assert found[name].startswith("InternalError"), out
        assert "Dawsn" in found[name] and "past_the_end" in found[name] and "1" in found[name]
    assert found["next"] == "[2. 3. 4.]" and found["after"] == "[3. 4. 5.]"
    assert found["error"] == "None"


def test_labels_name_the_node(library):
    body = """
        attempt("faulty", lambda: tf.function(lambda x: tf.raw_ops.Dawsn(x=x, name="culprit"))(x))
    """
    out = run(
        PROLOGUE.format(library=str(library)) + body,
        METAL_DEVICE_WRAPPER_TYPE="1",
        METAL_OPS_LABELS="1",
    )
    assert "in 'Dawsn culprit'" in lines(out)["faulty"], out
    out = run(PROLOGUE.format(library=str(library)) + body, METAL_DEVICE_WRAPPER_TYPE="1")
    assert "culprit'" not in lines(out)["faulty"].partition("[[")[0], out


def test_a_profile_has_no_times_of_what_failed(library):
    out = run(
        PROLOGUE.format(library=str(library))
        + """
        from metal_ops import profiler
        y = x + 1.0
        with profiler.trace() as profile:
            x + 1.0
            attempt("faulty", lambda: tf.math.special.dawsn(x))
            x + 2.0
        for kind in ("op", "shader", "command buffer"):
            some = profile.events[profile.events["kind"] == profile.kinds.index(kind)]
            print(kind, "->", [profile.strings[e["op"] or e["name"]] for e in some])
        """,
        METAL_DEVICE_WRAPPER_TYPE="1",
    )
    found = lines(out)
    assert found["faulty"].startswith("InternalError")
    assert found["op"] == "['AddV2', 'Dawsn', 'AddV2']", out
    assert found["shader"] == "['AddV2', 'AddV2']", out
    assert "'command buffer, failed'" in found["command buffer"], out


def test_kernels_that_do_not_ask(library):
    # A third party's kernel does not ask how its work went: the fault comes out where its result would be used.
    out = run(
        PROLOGUE.format(library=str(library))
        + """
        y = tf.raw_ops.Spence(x=x)
        attempt("read", lambda: y.numpy())
        attempt("read again", lambda: y.numpy())
        attempt("synchronize", device.synchronize)
        attempt("clear", device.clear_error)
        attempt("after", lambda: (x + 1.0).numpy())
        attempt("synchronized", device.synchronize)
        """,
        METAL_DEVICE_WRAPPER_TYPE="1",
    )
    found = lines(out)
    for name in ("read", "read again"):
        assert found[name].startswith("InternalError") and "clear_error" in found[name], out
    assert found["synchronize"].startswith("DeviceError")
    assert "past_the_end" in found["clear"]
    assert found["after"] == "[2. 3. 4.]" and found["synchronized"] == "None"
