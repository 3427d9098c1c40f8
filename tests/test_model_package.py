"""metal_ops.package: functions packed into files, and loaded here, in another process, and without a compiler."""

from __future__ import annotations

import json
import struct
import sys
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import package
from metal_ops.metal import toolchain
from metal_ops.package import container
from tests.processes import Process

pytestmark = pytest.mark.ops

RNG = np.random.default_rng(0)


def picture_model(dtype: str = "float32") -> keras.Model:
    """Convolutions with all the ops fused to them, of weights that are not the layers' initial ones."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input([12, 12, 3], name="picture")
    x = keras.layers.Conv2D(16, 3, padding="same", dtype=dtype)(inputs)
    x = keras.layers.ReLU()(keras.layers.BatchNormalization(dtype=dtype)(x))
    y = keras.layers.Conv2D(16, 3, padding="same", activation="relu", dtype=dtype)(x)
    y = keras.layers.Conv2D(64, 3, activation="relu", dtype=dtype)(keras.layers.Add()([x, y]))
    pooled = keras.layers.GlobalAveragePooling2D()(y)
    outputs = {
        "classes": keras.layers.Dense(80, activation="softmax", dtype=dtype, name="classes")(
            pooled
        ),
        "size": keras.layers.Dense(1, dtype=dtype, name="size")(pooled),
    }
    model = keras.Model(inputs, outputs)
    for weight in model.weights:
        low = 0.5 if "variance" in weight.path else -0.15
        weight.assign(RNG.uniform(low, low + 0.3, weight.shape))
    return model


PICTURES = RNG.uniform(-1, 1, [5, 12, 12, 3]).astype(np.float32)
# Grappler folds a batch norm into numbers and computes in another order. Half precision rounds in between.
TOLERANCE = {"float32": 1e-5, "float16": 2e-2}


def close(result, expected, tolerance: float = 0.0) -> None:
    tf.nest.assert_same_structure(result, expected)
    for one, other in zip(tf.nest.flatten(result), tf.nest.flatten(expected), strict=True):
        if one is None:
            continue
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    return package.save(picture_model(), tmp_path_factory.mktemp("model") / "m.mpkg")


# ---- what is packed returns what it returned ----


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_keras_model(tmp_path, dtype):
    model = picture_model(dtype)
    loaded = package.load(package.save(model, tmp_path / "m.mpkg"))
    assert [str(spec) for spec in loaded.inputs] == ["picture: float32[?, 12, 12, 3]"]
    assert [str(spec) for spec in loaded.outputs] == [
        f"classes: {dtype}[?, 80]",
        f"size: {dtype}[?, 1]",
    ]
    for n in (5, 1, 3):
        close(loaded(PICTURES[:n]), model(PICTURES[:n], training=False), TOLERANCE[dtype])
    close(loaded(picture=PICTURES), loaded({"picture": PICTURES}))


def test_a_saved_model(tmp_path):
    model = picture_model()
    model.export(str(tmp_path / "saved"), verbose=False)
    signature = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    loaded = package.load(package.save(tmp_path / "saved", tmp_path / "m.mpkg"))
    close(loaded(PICTURES), signature(picture=tf.constant(PICTURES)), 1e-5)
    with pytest.raises(
        package.PackageError, match=r"has no 'other'; it has 'serv.*'serving_default'"
    ):
        package.save(tmp_path / "saved", tmp_path / "n.mpkg", signature="other")
    with pytest.raises(package.PackageError, match="has no saved_model.pb"):
        package.save(tmp_path, tmp_path / "n.mpkg")


def test_quantized_weights_stay_quantized(tmp_path):
    keras.utils.set_random_seed(1)
    layers = [keras.Input([64]), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(8)]
    layers += [keras.layers.Reshape([1, 1, 8]), keras.layers.Conv2D(64, 1), keras.layers.Flatten()]
    model = metal_ops.quantize_model(keras.Sequential(layers), metal_ops.QuantizationSpec())
    path = package.save(model, tmp_path / "q.mpkg")
    x = RNG.normal(size=[3, 64]).astype(np.float32)
    close(package.load(path)(x), model(x, training=False), 1e-6)
    found = package.inspect(path)
    assert found.ops["MetalQuantizedMatMul"] == 2
    assert found.ops["MetalDequantize"] == 1, "the convolution's weights are folded to floats"
    # 64 x 256 weights of half a byte or one: as floats there would be four times as many.
    assert found.bytes < 64 * 256 * 3


def test_ops_of_this_library(tmp_path):
    grid = metal_ops.HashGrid(n_dims=3, n_levels=4, log2_hashmap_size=12, finest_resolution=64)
    table = tf.Variable(RNG.uniform(-1, 1, grid.init_table().shape).astype(np.float32))
    kernel = tf.Variable(RNG.normal(size=[3, 3, 8, 8]).astype(np.float32))

    @tf.function(
        input_signature=[tf.TensorSpec([None, 3], name="points"), tf.TensorSpec([1, 6, 6, 8])]
    )
    def both(points, picture):
        encoded = metal_ops.hash_encode(points, table, grid)
        return encoded, metal_ops.fused_conv2d(picture, kernel, activation="relu")

    path = package.save(both, tmp_path / "ops.mpkg")
    given = (
        RNG.uniform(0, 1, [50, 3]).astype(np.float32),
        RNG.normal(size=[1, 6, 6, 8]).astype(np.float32),
    )
    close(package.load(path)(*given), both(*map(tf.constant, given)))
    assert {"HashEncode", "MetalFusedConv2D"} <= package.inspect(path).ops.keys()


def test_loops_branches_and_functions_that_stay_calls(tmp_path):
    step = tf.Variable(3.0)
    words = tf.Variable(RNG.normal(size=[10, 4]).astype(np.float32))

    @tf.function(jit_compile=True)
    def compiled(x):
        return x * 2.0 + 1.0

    @tf.function(
        input_signature=[tf.TensorSpec([None], name="x"), tf.TensorSpec([], tf.int32, name="n")]
    )
    def control(x, n):
        for _ in tf.range(n):
            if tf.reduce_sum(x) > 100.0:
                x = x * 0.5
            else:
                x = compiled(x) + step
        rows = tf.map_fn(
            lambda i: tf.gather(words, i) * x[0], tf.range(n), fn_output_signature=tf.float32
        )
        return {"rows": rows, "nested": [x, (n, tf.shape(words))], "nothing": None}

    path = package.save(control, tmp_path / "c.mpkg")
    loaded = package.load(path)
    for n in (0, 3, 9):
        given = tf.constant([1.0, 2.0, 3.0]), tf.constant(n)
        close(loaded(*given), control(*given))
    # The file has the values of then.
    expected = control(tf.ones([1]), tf.constant(3))
    step.assign(100.0)
    close(loaded(tf.ones([1]), n=3), expected)
    assert loaded(tf.ones([1]), 3)["nothing"] is None


def test_shapes_and_values_that_are_fixed(tmp_path):
    def scaled(x, weights, factor, up):
        return tf.matmul(x, weights) * factor if up else x

    shapes = {
        "x": [None, 4],
        "weights": tf.TensorSpec([4, 64], tf.float32),
        "factor": [],
        "up": tf.TensorSpec([], tf.bool),
    }
    weights = RNG.normal(size=[4, 64]).astype(np.float32)
    path = package.save(
        scaled,
        tmp_path / "s.mpkg",
        shapes=shapes,
        specialize={"weights": weights, "factor": 2.0, "up": np.True_},
    )
    loaded = package.load(path)
    assert [str(spec) for spec in loaded.inputs] == ["x: float32[?, 4]"]
    x = RNG.normal(size=[3, 4]).astype(np.float32)
    close(loaded(x), tf.matmul(x, weights) * 2.0, 1e-6)
    ops = package.inspect(path).ops
    assert not {"If", "Switch", "Merge"} & ops.keys(), "the branch is not decided"

    # Python's own values decide Python's own branches.
    plain = tf.autograph.experimental.do_not_convert(lambda x, up: x * 2.0 if up else x)
    known = package.save(plain, tmp_path / "p.mpkg", shapes={"x": [2]}, specialize={"up": True})
    assert package.load(known)(tf.ones([2])).numpy().tolist() == [2.0, 2.0]

    again = package.load(
        package.save(picture_model(), tmp_path / "f.mpkg", shapes=[[2, None, 12, None]])
    )
    assert str(again.inputs[0]) == "picture: float32[2, 12, 12, 3]"
    assert str(again.outputs[0]) == "classes: float32[2, 80]"
    with pytest.raises(
        package.PackageError, match=r"picture: expected shape \[2, 12, 12, 3\], got \[5, 12"
    ):
        again(PICTURES)


def test_the_same_weights_are_stored_once(tmp_path):
    value = RNG.integers(0, 9, [64, 128]).astype(np.int32)
    first, second = tf.Variable(value), tf.Variable(value)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def twice(i):
        return tf.gather(first, i), tf.gather(second, i + 1)

    path = package.save(twice, tmp_path / "t.mpkg")
    assert len(package.inspect(path).weights) == 2
    assert value.nbytes <= path.stat().st_size < 1.5 * value.nbytes
    i = np.int32([2, 0])
    close(package.load(path)(i), twice(tf.constant(i)))


def test_what_a_function_does_besides(tmp_path, capfd):
    @tf.function
    def inner(x):
        tf.print("inner", x, output_stream=sys.stderr)
        return x

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="x")])
    def loud(x):
        inner(x + 1.0)
        tf.debugging.assert_positive(x)
        return tf.random.uniform([1000]) + x

    loaded = package.load(package.save(loud, tmp_path / "l.mpkg"))
    assert "inner" not in capfd.readouterr().err, "loading has run it"
    first, second = loaded(1.0), loaded(1.0)
    assert capfd.readouterr().err.count("inner 2") == 2
    assert not np.array_equal(first, second)
    with pytest.raises(tf.errors.InvalidArgumentError):
        loaded(-1.0)


def test_inside_of_a_function(packed):
    loaded = package.load(packed)
    inside = tf.function(lambda x: loaded(x)["size"] * 2.0)
    close(inside(tf.constant(PICTURES)), loaded(PICTURES)["size"] * 2.0)


def test_the_first_call_does_what_later_ones_do(tmp_path):
    """TensorFlow makes its executors while the package is loaded; the pass counts the graphs that it does it with."""
    weights = tf.Variable(RNG.normal(size=[64, 64]).astype(np.float32))
    spec = [tf.TensorSpec([None, 64])]
    path = package.save(
        tf.function(lambda x: tf.matmul(x, weights), input_signature=spec), tmp_path / "m.mpkg"
    )
    with metal_ops.fusion.enabled(cpu=True):
        loaded = package.load(path)
        before = metal_ops.fusion.status().graphs
        loaded(tf.ones([5, 64]))
        assert metal_ops.fusion.status().graphs == before
        package.load(path, warm=False)(tf.ones([5, 64]))
        assert metal_ops.fusion.status().graphs > before, "the control: a first run is seen"


# ---- other processes ----

OTHER = """
import sys
import metal_ops
late = [name for name in sys.modules if name.startswith(("metal_ops.package.", "metal_ops.metal."))]
assert not late, f"import metal_ops imports {late}"
import numpy as np, tensorflow as tf
from metal_ops import package
loaded = package.load(sys.argv[1])
result = loaded(**{name: value for name, value in np.load(sys.argv[2]).items()})
np.savez(sys.argv[3], **{str(i): value for i, value in enumerate(tf.nest.flatten(result))})
"""


def other_process(path: Path, given: dict, env: dict[str, str] | None = None) -> list[np.ndarray]:
    np.savez(path.with_suffix(".in.npz"), **given)
    out = path.with_suffix(".out.npz")
    code, _, said = Process(
        "-c", OTHER, str(path), str(path.with_suffix(".in.npz")), str(out), **(env or {})
    ).finish()
    assert code == 0, said
    return [value for _, value in sorted(np.load(out).items())]


def test_shaders_run_in_another_process_without_a_compiler(tmp_path):
    axpy = metal_ops.metal_kernel(
        "axpy",
        inputs=["x", "y"],
        outputs=["z"],
        source="z[i] = a * x[i] + y[i];",
        params={"a": "float"},
    )

    @tf.function(input_signature=[tf.TensorSpec([None], name="x")])
    def twice(x):
        for _ in tf.range(2):
            x = axpy(x, tf.ones_like(x), a=3.0)
        return x

    processor = toolchain.default_target()
    path = package.save(twice, tmp_path / "k.mpkg", targets=[processor, "sm_90"])
    found = package.inspect(path)
    ((member, (functions, targets)),) = found.shaders.items()
    assert (functions, targets) == (["axpy"], [processor, "sm_90"])
    with zipfile.ZipFile(path) as archive:
        assert b"a * x[i]" not in archive.read("graph.pb"), "the text is still there"
        assert b"sm_90" in archive.read(member)
    x = np.float32([1, 2, 3])
    nowhere = str(tmp_path / "nowhere")
    hidden = {
        "METAL_OPS_CACHE": str(tmp_path / "empty"),
        "METAL_OPS_CLANG": nowhere,
        "METAL_OPS_LIBCLANG": nowhere,
    }
    hidden |= {"HOSTMETAL_COMPILER": nowhere, "PATH": nowhere}
    (result,) = other_process(path, {"x": x}, hidden)
    np.testing.assert_array_equal(result, 9 * x + 4)
    assert not (tmp_path / "empty").exists(), "something was compiled"


# ---- what is refused ----


def test_what_cannot_be_packed(tmp_path):
    counter = tf.Variable(0.0)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), -1)
    spec = [tf.TensorSpec([], tf.float32, name="x")]

    def assigns(x):
        return counter.assign_add(x)

    def in_a_loop(x):
        for _ in tf.range(3):
            counter.assign(x)
        return x

    def calls_python(x):
        return tf.py_function(lambda v: v + 1, [x], tf.float32)

    def looks_up(x):
        return table.lookup(tf.cast(x, tf.int32))

    def ragged(x):
        return tf.RaggedTensor.from_row_lengths(tf.stack([x, x]), [1, 1])

    cases = {
        assigns: "AssignAddVariableOp changes a variable.*state as an argument",
        in_a_loop: "AssignVariableOp changes a variable",
        calls_python: "EagerPyFunc calls Python",
        looks_up: "LookupTableFindV2 uses a lookup table",
        ragged: "expected tensors in dicts, lists and tuples, got RaggedTensor",
        (lambda x: None): "returns no tensor",
    }
    for function, message in cases.items():
        with pytest.raises(package.PackageError, match=message):
            package.save(tf.function(function, input_signature=spec), tmp_path / "n.mpkg")
    assert not [*tmp_path.iterdir()], "a file is left"


def test_arguments_that_do_not_fit(tmp_path):
    def plus(x, y):
        return x + y

    shapes = {"x": [None, 3], "y": [3]}
    cases = [
        ({}, "does not say what it takes; give shapes="),
        ({"shapes": {"x": [3]}}, "do not fit the function's arguments"),
        ({"shapes": {"x": "wide", "y": [3]}}, r"shapes\['x'\]: expected a shape such as"),
        ({"shapes": shapes, "specialize": {"z": [1.0]}}, "no input 'z'; there are x, y"),
        (
            {"shapes": shapes, "specialize": {"y": [1.0]}},
            r"specialize\['y'\]: expected shape \(3,\), got \(1,\)",
        ),
        ({"shapes": shapes, "specialize": {"y": ["a"] * 3}}, "expected a value of float32"),
        ({"shapes": shapes, "device": "TPU"}, "expected 'CPU' or 'METAL', got 'TPU'"),
        ({"shapes": shapes, "targets": ["sm_12"]}, "expected GPUs sm_80 or sm_90, got 'sm_12'"),
        ({"shapes": shapes, "targets": ["x86-64-v3", "x86-64-v4"]}, "expected one processor"),
    ]
    if not metal_ops.device.list():
        cases.append(({"shapes": shapes, "device": "METAL"}, "METAL is not loaded"))
    for arguments, message in cases:
        with pytest.raises(package.PackageError, match=message):
            package.save(plus, tmp_path / "n.mpkg", **arguments)
    with pytest.raises(package.PackageError, match="expected a function, a Keras model"):
        package.save(3, tmp_path / "n.mpkg")
    (tmp_path / "file").write_text("")
    with pytest.raises(package.PackageError, match="cannot be written"):
        package.save(plus, tmp_path / "file" / "n.mpkg", shapes=shapes)
    fixed = tf.function(plus, input_signature=[tf.TensorSpec([2]), tf.TensorSpec([2])])
    with pytest.raises(package.PackageError, match=r"shapes\['x'\]: expected sizes that fit \[2\]"):
        package.save(fixed, tmp_path / "n.mpkg", shapes={"x": [3]})


def test_calls_that_do_not_fit(packed):
    loaded = package.load(packed)
    cases = [
        ((), {}, "picture: is missing; expected picture: float32"),
        ((PICTURES, PICTURES), {}, "got 2 inputs"),
        ((PICTURES,), {"picture": PICTURES}, "picture: is given twice"),
        ((), {"image": PICTURES}, "there is no input 'image'; expected picture"),
        ((PICTURES[0],), {}, r"picture: expected shape \[\?, 12, 12, 3\], got \[12, 12, 3\]"),
        (
            (PICTURES.astype("f8"),),
            {},
            r"picture: expected dtype float32, got float64; convert it with tf.cast",
        ),
        (("cat",), {}, r"picture: expected float32\[\?, 12, 12, 3\]"),
    ]
    for args, kwargs, message in cases:
        with pytest.raises(package.PackageError, match=message):
            loaded(*args, **kwargs)


def test_lists_are_structures_or_numbers(tmp_path):
    """As TensorFlow's functions take them: lists of tensors are lists of inputs, lists of numbers are inputs."""
    package.save(lambda x: x + 1.0, tmp_path / "one.mpkg", shapes=[[None, 2]])
    one = package.load(tmp_path / "one.mpkg")
    for x in ([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0]], ((1, 2),)):
        np.testing.assert_array_equal(one(x), np.add(x, 1.0))
        np.testing.assert_array_equal(one(x=x), np.add(x, 1.0))
    np.testing.assert_array_equal(one([tf.ones([1, 2])]), [[2.0, 2.0]])

    def minus(pair, z):
        return pair[0] - pair[1] * z

    specs = [[tf.TensorSpec([2]), tf.TensorSpec([2])], tf.TensorSpec([2])]
    package.save(tf.function(minus, input_signature=specs), tmp_path / "two.mpkg")
    two = package.load(tmp_path / "two.mpkg")
    x, y, z = (np.full(2, value, "float32") for value in (5, 3, 2))
    for arguments in (([x, y], z), (x, y, z), (x.tolist(), y.tolist(), z.tolist())):
        np.testing.assert_array_equal(two(*arguments), [-1.0, -1.0])


# ---- files ----


def rewritten(source: Path, target: Path, **changes) -> Path:
    """The package with other members (a function of the old bytes), its hashes as they were."""
    with zipfile.ZipFile(source) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    for name, change in changes.items():
        name = {"manifest": "manifest.json", "graph": "graph.pb", "weights": "weights.bin"}[name]
        content[name] = change(content[name])
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return target


def manifest_with(**changes):
    def change(text: bytes) -> bytes:
        return json.dumps({**json.loads(text), **changes}).encode()

    return change


def test_the_file(packed):
    with zipfile.ZipFile(packed) as archive:
        assert archive.testzip() is None
        for info in archive.infolist():
            assert info.compress_type == zipfile.ZIP_STORED
            with open(packed, "rb") as file:
                file.seek(info.header_offset + 26)
                name, extra = struct.unpack("<HH", file.read(4))
            assert (info.header_offset + 30 + name + extra) % container.ALIGNMENT == 0, (
                info.filename
            )
    assert not [path for path in packed.parent.iterdir() if path.suffix == ".tmp"]


def test_weights_are_mapped_not_read(packed):
    """The CPU computes with the mapped file itself."""
    loaded = package.load(packed)
    mapped = Path("/proc/self/maps")
    if not mapped.exists():
        pytest.skip("needs /proc")
    ranges = [
        [int(end, 16) for end in line.split()[0].split("-")]
        for line in mapped.read_text().splitlines()
        if line.endswith(str(packed))
    ]
    assert loaded._weights
    for weight in loaded._weights:
        address = np.frombuffer(memoryview(weight).cast("B"), np.uint8).ctypes.data
        assert any(begin <= address < end for begin, end in ranges)


def test_files_that_are_no_package_or_damaged(packed, tmp_path):
    data = packed.read_bytes()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_bytes(b"hello")
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("a", "b")
    with (
        zipfile.ZipFile(packed) as old,
        zipfile.ZipFile(tmp_path / "small", "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in old.namelist():
            archive.writestr(name, old.read(name))
    at = data.index(b"package_result_0")
    (tmp_path / "bit").write_bytes(data[:at] + b"Q" + data[at + 1 :])
    cases = {
        "nowhere": "cannot be read",
        "empty": "is empty",
        "text": "is no package",
        "cut": "is cut off or damaged",
        "zip": "it has no manifest.json",
        "small": "is compressed, and a package's members are not",
        "bit": "graph.pb is not what was saved",
    }
    for name, message in cases.items():
        with pytest.raises(package.PackageError, match=message):
            package.load(tmp_path / name)
    weights = rewritten(
        packed, tmp_path / "weights", weights=lambda old: old[:-1] + bytes([old[-1] ^ 1])
    )
    with pytest.raises(package.PackageError, match="weights.bin is not what was saved"):
        package.load(weights)
    assert package.inspect(weights).damaged == ["weights.bin"]
    package.load(weights, verify=False)


def test_packages_that_do_not_fit_here(packed, tmp_path):
    cases = [
        (
            manifest_with(version=9),
            "has format 9, and this metal_ops reads up to 1; update metal_ops",
        ),
        (manifest_with(tensorflow="2.3.1"), "was saved with TensorFlow 2.3.1, and this is"),
        (manifest_with(platform="darwin-arm64"), "was saved for darwin-arm64, and this is"),
        (manifest_with(format="zip"), "manifest.json is not a package's"),
        (lambda text: b"[" * 100_000, "manifest.json is no JSON"),
    ]
    for change, message in cases:
        changed = rewritten(packed, tmp_path / "changed", manifest=change)
        with pytest.raises(package.PackageError, match=message):
            package.load(changed)
    release = ".".join(tf.__version__.split(".")[:2])
    package.load(
        rewritten(packed, tmp_path / "patch", manifest=manifest_with(tensorflow=f"{release}.99"))
    )
    with pytest.raises(package.PackageError, match="was saved for the CPU"):
        package.load(packed, device="METAL")
    unknown = rewritten(
        packed, tmp_path / "op", graph=lambda old: old.replace(b"Softmax", b"Softmux")
    )
    with pytest.raises(package.PackageError, match="uses the op Softmux, which is not here"):
        package.load(unknown, verify=False)


def test_any_bytes_are_refused_or_loaded(packed, tmp_path):
    """Manifests with values of all kinds in all places, and files with other bytes anywhere in their archive."""
    with zipfile.ZipFile(packed) as archive:
        text = archive.read("manifest.json")
    places = [(key,) for key in json.loads(text)]
    for kind in ("inputs", "outputs", "weights"):
        places += [(kind, 0, key) for key in json.loads(text)[kind][0]]
    refused = 0
    for place in places:
        for value in (None, -1, 2**70, 1.5, "x", [], {}, [[]], [None], {"dict": 3}, True):
            manifest = json.loads(text)
            inner = manifest
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            changed = rewritten(
                packed, tmp_path / "m", manifest=lambda _, m=manifest: json.dumps(m).encode()
            )
            try:
                package.load(changed, verify=False, warm=False)
            except package.PackageError:
                refused += 1
    assert refused > len(places) * 6
    data = bytearray(packed.read_bytes())
    begin = data.rindex(b"PK\x01\x02") - 400
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(RNG.integers(1, 4)):
            changed[RNG.integers(begin, len(data))] = RNG.integers(256)
        (tmp_path / "m").write_bytes(
            changed[: RNG.choice([len(data), RNG.integers(begin, len(data))])]
        )
        try:
            package.inspect(tmp_path / "m")
        except package.PackageError:
            refused += 1
    assert refused


# ---- what is in it ----


def test_inspection_and_its_picture(packed, tmp_path):
    found = package.inspect(packed)
    assert found.made_by["tensorflow"] == tf.__version__
    assert found.damaged == []
    assert sum(found.fused.values()) >= 3
    assert found.weights[0][0].shape == (3, 3, 16, 64)
    page = found.explanation().save(tmp_path / "m.html").read_text()
    assert "package_result_0" in page
    assert "_FusedConv2D" in page


def test_the_command(packed, tmp_path, capsys):
    from metal_ops.cli import main

    assert main(["package", "inspect", str(packed), "--html", str(tmp_path / "m.html")]) == 0
    said = capsys.readouterr().out
    assert "picture: float32[?, 12, 12, 3]" in said
    assert "hashes: as saved" in said
    assert (tmp_path / "m.html").exists()

    np.save(tmp_path / "x.npy", PICTURES)
    output = tmp_path / "y.npz"
    run = [
        "package",
        "run",
        str(packed),
        f"picture={tmp_path / 'x.npy'}",
        "--output",
        str(output),
        "--calls",
        "2",
    ]
    assert main(run) == 0
    assert "calls: first" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(output)["size"], package.load(packed)(PICTURES)["size"])

    tf.saved_model.save(
        tf.Module(),
        str(tmp_path / "saved"),
        signatures=tf.function(lambda x: {"y": x + 1.0}).get_concrete_function(
            tf.TensorSpec([None, 3], name="x")
        ),
    )
    save = [
        "package",
        "save",
        str(tmp_path / "saved"),
        str(tmp_path / "s.mpkg"),
        "--shape",
        "x=?,3",
    ]
    assert main(save) == 0
    assert "input   x: float32[?, 3]" in capsys.readouterr().out
    close(package.load(tmp_path / "s.mpkg")(tf.ones([1, 3])), {"y": tf.fill([1, 3], 2.0)})

    for arguments, message in (
        (["inspect", str(tmp_path / "x.npy")], "is no package"),
        (["run", str(packed), f"picture={packed}"], "is an archive; give one array"),
        (["run", str(packed), f"image={tmp_path / 'x.npy'}"], "there is no input 'image'"),
        (["save", str(tmp_path), str(tmp_path / "n.mpkg")], "has no saved_model.pb"),
    ):
        assert main(["package", *arguments]) == 2
        assert message in capsys.readouterr().err
