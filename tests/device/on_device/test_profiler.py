"""The profiler's record of known work: each thing once, under its name, at its time."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import profiler
from tests import doctests
from tests.processes import Process


@tf.function
def chain(x: tf.Tensor) -> tf.Tensor:
    y = tf.matmul(x, x, name="product")
    return tf.sqrt(tf.abs(y, name="size"), name="root")


def of(profile: profiler.Profile, kind: str) -> np.ndarray:
    return profile.events[profile.events["kind"] == profile.kinds.index(kind)]


def names(profile: profiler.Profile, events: np.ndarray, field: str) -> list[str]:
    return [profile.strings[number] for number in events[field]]


@pytest.fixture
def x() -> tf.Tensor:
    x = tf.random.stateless_uniform([64, 64], [1, 2])
    chain(x)  # traced, its shaders compiled
    metal_ops.device.synchronize()
    return x


def test_each_op_appears_once_with_its_names(x) -> None:
    with profiler.trace() as profile:
        chain(x)
    ops = of(profile, "op")
    assert sorted(names(profile, ops, "op")) == ["Abs", "MatMul", "Sqrt"]
    assert sorted(names(profile, ops, "node")) == ["product", "root", "size"]
    shaders = of(profile, "shader")
    by_op = dict(zip(names(profile, shaders, "op"), shaders, strict=True)) | {}
    assert set(by_op) == {"Abs", "MatMul", "Sqrt"}
    root = by_op["Sqrt"]
    assert profile.strings[root["name"]].startswith("sqrt_float")
    assert root["grid"].tolist() == [4096, 1, 1]
    assert 1 <= root["group"][0] <= 1024
    assert root["bytes"] >= 2 * 4096 * 4  # bytes read and written


def test_a_library_op_and_the_devices_own_copies() -> None:
    x = tf.ones([1000])
    metal_ops.softshrink(x)
    with profiler.trace() as profile:
        y = metal_ops.softshrink(x)
        y.numpy()
        tf.constant(np.ones(2**12, np.float32)) + y[0]
    assert "Softshrink" in names(profile, of(profile, "shader"), "op")
    assert 4000 in of(profile, "copy to the host")["bytes"]
    assert 4 * 2**12 in of(profile, "copy to the device")["bytes"]


def test_times_are_in_order_and_inside_the_call(x) -> None:
    before = time.monotonic_ns()
    with profiler.trace() as profile:
        for _ in range(20):
            chain(x)
    after = time.monotonic_ns()
    assert before <= profile.began <= profile.ended <= after
    events = profile.events
    assert (events["start"] >= profile.began).all()
    assert (events["start"] <= events["end"]).all()
    assert (events["end"] <= after).all()
    shaders = np.sort(of(profile, "shader"), order="encoded")
    assert len(shaders) >= 60
    # Nothing runs before it is asked for; one stream's work runs in the order in which it was.
    assert (shaders["start"] > shaders["encoded"]).all()
    assert len(set(shaders["stream"])) == 1
    # 2 us for the clocks, which are read one after the other; a GPU's events tell half a microsecond.
    assert (shaders["start"][1:] + 2000 >= shaders["end"][:-1]).all()
    buffers = {int(event["buffer"]): event for event in of(profile, "command buffer")}
    for shader in shaders:
        whole = buffers[int(shader["buffer"])]
        assert whole["start"] <= shader["start"] + 2000
        assert shader["end"] <= whole["end"] + 2000


def test_names_where_others_lay_before() -> None:
    """The name of a node in an ended session lies where the next one's name does."""
    called = [f"node{i:04}_" + "of_a_session" * 2000 for i in range(30)]
    with profiler.trace() as profile:
        for name in called:
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                x = tf.compat.v1.placeholder(tf.float32, [8])
                session.run(tf.abs(x, name=name), {x: np.ones(8)})
            del session, x
            gc.collect()
    nodes = names(profile, of(profile, "op"), "node")
    assert [node for node in nodes if node in called] == called
    launched = names(profile, of(profile, "shader"), "node")
    assert [node for node in launched if node in called] == called


def test_waits_are_seen(x) -> None:
    big = tf.random.stateless_uniform([1024, 1024], [1, 2])
    chain(big)
    metal_ops.device.synchronize()
    with profiler.trace() as profile:
        y = chain(big)
        metal_ops.device.synchronize()
    waits = of(profile, "wait")
    assert len(waits)
    # A GPU may have done most before the first wait.
    left = of(profile, "shader")["end"].max() - waits["start"].min()
    assert (waits["end"] - waits["start"]).sum() > left // 4
    del y


def test_threads_at_the_same_time(x) -> None:
    calls, n_threads = 25, 4

    def run() -> None:
        for _ in range(calls):
            chain(x)

    threads = [threading.Thread(target=run) for _ in range(n_threads)]
    with profiler.trace() as profile:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ops = names(profile, of(profile, "op"), "node")
    assert {node: ops.count(node) for node in set(ops)} == dict.fromkeys(
        ("product", "size", "root"), calls * n_threads
    )
    shaders = names(profile, of(profile, "shader"), "node")
    assert shaders.count("root") == calls * n_threads
    assert len(set(of(profile, "op")["thread"])) > 1


def test_more_than_a_page_of_threads_that_have_ended(x) -> None:
    """Events and passes lie in pages of 512, an event's in one of its thread's."""
    many = tf.function(lambda x: [x := tf.abs(x) for _ in range(100)][-1])
    many(x)

    def run() -> None:
        for _ in range(13):
            many(x)
        tf.abs(x)

    with profiler.trace() as profile:
        for _ in range(2):
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
    assert names(profile, of(profile, "op"), "op") == ["Abs"] * 2602
    shaders = of(profile, "shader")
    assert names(profile, shaders, "op") == ["Abs"] * 2602
    assert (np.diff(profile.events["encoded"].astype(np.int64)) >= 0).all()
    assert (shaders["start"] <= shaders["end"]).all()
    assert (shaders["end"][:-1] <= shaders["start"][1:] + 2000).all()
    buffers = of(profile, "command buffer")
    assert set(shaders["buffer"].tolist()) <= set(buffers["buffer"].tolist())
    # A buffer is asked for as its first launch is.
    first: dict[int, int] = {}
    for shader in shaders:
        first.setdefault(int(shader["buffer"]), int(shader["encoded"]))
    asked = {int(buffer["buffer"]): int(buffer["encoded"]) for buffer in buffers}
    assert {number: asked[number] for number in first} == first


def test_the_first_launch_of_an_op_is_asked_for_as_it_is_called() -> None:
    parts = [tf.fill([3], float(i)) for i in range(100)]
    tf.concat(parts, 0)
    with profiler.trace() as profile:
        tf.concat(parts, 0)
    (call,) = of(profile, "op")
    asked = of(profile, "shader")["encoded"]
    assert len(asked) > 1 and asked[0] == call["start"]
    assert (np.diff(asked.astype(np.int64)) > 0).all() and asked[-1] < call["end"]


def test_names_have_new_numbers_in_the_next_trace(x) -> None:
    """Kernels keep the numbers of their names, which other names may have got meanwhile."""
    other = tf.function(lambda x: tf.exp(tf.floor(x, name="first"), name="second"))
    other(x)
    for _ in range(2):
        with profiler.trace() as profile:
            chain(x)
            other(x)
        with profiler.trace() as turned:
            other(x)
            chain(x)
        for each in (profile, turned):
            for kind in ("op", "shader"):
                events = of(each, kind)
                pairs = zip(names(each, events, "op"), names(each, events, "node"), strict=True)
                called = {"MatMul": "product", "Abs": "size", "Sqrt": "root"}
                assert dict(pairs) == {**called, "Floor": "first", "Exp": "second"}
            assert {name.split("_")[0] for name in names(each, of(each, "shader"), "name")} >= {
                "abs",
                "sqrt",
                "floor",
                "exp",
            }


ONLY_STAGES = os.environ.get("HOSTMETAL_COUNTERS") == "stages"


@contextlib.contextmanager
def passes() -> Iterator[list[int]]:
    """The command buffer of each compute pass that begins inside: hostmetal's method is replaced by one that counts."""
    objc = ctypes.CDLL("libobjc.so.4")
    for name in ("objc_getClass", "sel_registerName"):
        getattr(objc, name).restype = ctypes.c_void_p
    for name in ("class_getInstanceMethod", "method_setImplementation"):
        function = getattr(objc, name)
        function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p]
    method = objc.class_getInstanceMethod(
        objc.objc_getClass(b"HMCommandBuffer"),
        objc.sel_registerName(b"computeCommandEncoderWithDispatchType:"),
    )
    signature = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulong)
    begun: list[int] = []

    @signature
    def counted(buffer, selector, dispatch_type):
        begun.append(buffer)
        return plain(buffer, selector, dispatch_type)

    before = objc.method_setImplementation(method, ctypes.cast(counted, ctypes.c_void_p))
    plain = signature(before)
    try:
        yield begun
        metal_ops.device.synchronize()
    finally:
        objc.method_setImplementation(method, before)


@pytest.mark.skipif(
    sys.platform != "linux", reason="of hostmetal, which has them; a Mac's GPU may not"
)
def test_launches_share_passes_where_the_device_takes_times_between_them(x) -> None:
    def work() -> None:
        chain(x)
        tf.sort(x)  # several launches in each of these
        tf.reduce_sum(x)

    work()
    with passes() as without:
        work()
    with passes() as begun, profiler.trace() as profile:
        work()
    launches = len(of(profile, "shader"))
    assert 3 < len(without) < launches
    assert len(begun) == (launches if ONLY_STAGES else len(without))


@pytest.mark.skipif(
    ONLY_STAGES or sys.platform != "linux",
    reason="this is that process, or a device without the choice",
)
def test_the_same_where_each_launch_has_a_pass() -> None:
    """As on Apple's GPUs: all of the above, in another process."""
    others = "not each_launch_has_a_pass and not examples_run and not tensorflows_profiler"
    code, out, err = Process(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", others,
        HOSTMETAL_COUNTERS="stages",
    ).finish(timeout=300)  # fmt: skip
    assert code == 0, out + err


def test_only_what_is_inside(x) -> None:
    chain(x)
    with profiler.trace() as profile:
        tf.sqrt(x)
    chain(x)
    assert names(profile, of(profile, "op"), "op") == ["Sqrt"]
    assert names(profile, of(profile, "shader"), "op") == ["Sqrt"]
    with profiler.trace() as profile:
        pass
    assert len(of(profile, "op")) == len(of(profile, "shader")) == 0


def test_one_at_a_time(x) -> None:
    with profiler.trace() as outer:
        with (
            pytest.raises(
                profiler.ProfilerError, match="is being profiled already; let one trace end"
            ),
            profiler.trace(),
        ):
            raise AssertionError("not reached")
        tf.sqrt(x)
    assert names(outer, of(outer, "shader"), "op") == ["Sqrt"]


def test_an_exception_inside_ends_the_trace_and_writes_it(x, tmp_path) -> None:
    with pytest.raises(KeyError, match="its own"), profiler.trace(tmp_path / "t.json"):
        chain(x)
        raise KeyError("its own")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(event.get("args", {}).get("node") == "root" for event in events) == 2
    with profiler.trace():  # the other one is over
        pass


def test_the_file(x, tmp_path) -> None:
    path = tmp_path / "t.json"
    with profiler.trace(path) as profile:
        chain(x)
    assert [each.name for each in tmp_path.iterdir()] == ["t.json"]
    events = json.loads(path.read_text())["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == len(profile.events)
    span = (profile.ended - profile.began) / 1000
    for event in complete:
        assert event["ts"] >= 0 and event["dur"] >= 0 and event["ts"] <= span
    root = next(e for e in complete if e["cat"] == "shader" and e["args"]["node"] == "root")
    assert root["args"]["op"] == "Sqrt" and root["args"]["grid"] == [4096, 1, 1]
    # An arrow goes from the call of each pass, inside of its op, to the pass itself.
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert set(starts) == set(ends) and starts
    arrow = next(i for i, event in ends.items() if event["ts"] == root["ts"])
    op = next(e for e in complete if e["cat"] == "op" and e["args"]["node"] == "root")
    assert op["ts"] <= starts[arrow]["ts"] <= op["ts"] + op["dur"]
    assert starts[arrow]["tid"] == op["tid"]
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in complete} <= named


def test_the_file_is_whole_or_not_there(x, tmp_path, monkeypatch) -> None:
    path = tmp_path / "t.json"
    path.write_text("the one before")
    with profiler.trace() as profile:
        chain(x)

    def half(value, file) -> None:
        file.write('{"traceEvents": [')
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(json, "dump", half)
        with pytest.raises(OSError, match="no space left"):
            profile.save(path)
    assert path.read_text() == "the one before"
    assert [each.name for each in tmp_path.iterdir()] == ["t.json"]
    profile.save(path)
    assert json.loads(path.read_text())["traceEvents"]
    with (
        pytest.raises(FileNotFoundError, match=r"the folder of '.*' does not exist"),
        profiler.trace(tmp_path / "missing" / "t.json"),
    ):
        raise AssertionError("not reached")


def test_summary(x) -> None:
    tf.config.set_soft_device_placement(True)
    try:
        with profiler.trace() as profile:
            for _ in range(3):
                y = chain(x)
            tf.function(lambda x: tf.linalg.inv(x + tf.eye(64)))(y).numpy()
    finally:
        tf.config.set_soft_device_placement(False)
    summary = profiler.summary()
    rows = {row.name: row for row in summary.ops}
    assert rows["MatMul"].calls == rows["Sqrt"].calls == 3
    shaders = of(profile, "shader")
    mine = np.array(names(profile, shaders, "op")) == "Sqrt"
    spent = (shaders["end"] - shaders["start"])[mine].sum() * 1e-9
    assert rows["Sqrt"].seconds == pytest.approx(float(spent))
    assert rows["Sqrt"].mean == pytest.approx(float(spent) / 3)
    assert sum(row.share for row in summary.ops) == pytest.approx(1.0)
    assert list(summary.ops) == sorted(summary.ops, key=lambda row: (-row.seconds, row.name))
    assert summary.on_cpu == {"MatrixInverse": 1}
    copies = {row.name: row for row in summary.copies}
    assert copies["copy to the host"].bytes >= 2 * 64 * 64 * 4  # the inverse's input and the result
    assert copies["copy to the device"].bytes >= 0
    assert 0 < summary.busy <= summary.seconds
    text = str(summary)
    assert "on the CPU: MatrixInverse" in text and "\nSqrt " in text


def test_more_events_than_are_kept(x) -> None:
    with profiler.trace(max_events=5) as profile:
        for _ in range(10):
            chain(x)
    assert len(profile.events) == 5
    assert profile.dropped > 50
    assert f"{profile.dropped} events more than max_events" in str(profiler.summary(profile))
    with (
        pytest.raises(ValueError, match="max_events: expected at least 1, got 0"),
        profiler.trace(max_events=0),
    ):
        raise AssertionError("not reached")
    for wrong in (1.5, "many", None):
        with pytest.raises(
            TypeError, match=r"\[profiler.trace\] max_events: expected an integer, got"
        ):
            profiler.trace(max_events=wrong).__enter__()


def test_a_path_that_is_a_folder_is_found_out_before_the_block(tmp_path) -> None:
    with pytest.raises(IsADirectoryError, match="path: expected the name of a file, got"):
        with profiler.trace(tmp_path):
            raise AssertionError("not reached")


def test_more_passes_than_one_sample_buffer_has() -> None:
    parts = [tf.fill([3], float(i)) for i in range(100)]
    tf.concat(parts, 0)
    with profiler.trace() as profile:
        joined = tf.concat(parts, 0)
    shaders = of(profile, "shader")
    (buffer,) = set(shaders["buffer"].tolist())
    assert len(shaders) > 32 and not profile.dropped
    in_order = np.sort(shaders, order="encoded")
    assert (in_order["start"] > in_order["encoded"]).all()
    assert (in_order["start"][1:] >= in_order["end"][:-1]).all()
    assert joined[299] == 99.0 and buffer


def test_tensorflows_profiler_has_the_device(x, tmp_path) -> None:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    tf.profiler.experimental.start(str(tmp_path))
    with profiler.trace() as profile:  # both at the same time
        for _ in range(3):
            chain(x)
    tf.profiler.experimental.stop()
    (path,) = Path(tmp_path).rglob("*.xplane.pb")
    space = xplane_pb2.XSpace()
    space.ParseFromString(path.read_bytes())
    planes = {plane.name: plane for plane in space.planes}
    plane = planes["/device:GPU:0"]
    stats = {number: stat.name for number, stat in plane.stat_metadata.items()}
    assert "METAL" in [
        stat.str_value for stat in plane.stats if stats[stat.metadata_id] == "device_vendor"
    ]
    found = []
    for line in plane.lines:
        for event in line.events:
            said = {stats[stat.metadata_id]: stat for stat in event.stats}
            if "kernel_details" in said:
                name = plane.event_metadata[event.metadata_id].name
                found.append((name, said["tf_op"].str_value, event.duration_ps // 1000))
                assert said["kernel_details"].str_value.startswith("grid:")
                assert said["bytes"].int64_value > 0
    shaders = of(profile, "shader")
    expected = [
        (
            profile.strings[e["name"]],
            f"{profile.strings[e['node']]}:{profile.strings[e['op']]}",
            int(e["end"] - e["start"]),
        )
        for e in shaders
    ]
    assert sorted(each[:2] for each in found) == sorted(each[:2] for each in expected)
    np.testing.assert_allclose(
        sorted(each[2] for each in found), sorted(each[2] for each in expected), atol=2000
    )
    lines = [line.name for line in planes["/device:CUSTOM:METAL"].lines]
    assert any(line.startswith("Command buffers of stream") for line in lines)
    # On TensorFlow's clock: inside of the time in which its own tracer saw the calls.
    host = [line.timestamp_ns for line in planes["/host:CPU"].lines if line.events]
    device = [line.timestamp_ns for line in plane.lines]
    assert abs(min(host) - min(device)) < 60e9


def test_examples_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    doctests.run(Path(profiler.__file__))


def test_nothing_profiled_yet(monkeypatch) -> None:
    monkeypatch.setattr(profiler, "_last", None)
    with pytest.raises(profiler.ProfilerError, match="nothing was profiled yet"):
        profiler.summary()
