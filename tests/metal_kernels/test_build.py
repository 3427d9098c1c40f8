"""`python -m metal_ops build`: other people's ops, unedited, and its errors."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from metal_ops.build import builder, flags, headers
from tests.processes import Process

SAMPLES = Path(__file__).parent / "samples"
PACKAGE = Path(builder.__file__).resolve().parents[1]


def build(
    *arguments: object, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "metal_ops", "build", *map(str, arguments)]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env)


def run_on_device(script: str, python: Path | str = sys.executable, **environment: str) -> str:
    """Runs a script in a process of its own with the device loaded and soft placement off."""
    prologue = (
        "import numpy as np, tensorflow as tf, metal_ops.device\n"
        "metal_ops.device.load()\n"
        "tf.config.set_soft_device_placement(False)\n"
    )
    if python == sys.executable:
        code, out, err = Process("-c", prologue + script, **environment).finish(300)
        assert code == 0, f"exit code {code}\n{out}\n{err}"
        return out + err
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment}
    done = subprocess.run(
        [str(python), "-c", prologue + script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}"
    return done.stdout


@pytest.mark.full("builds one more op")
def test_op_and_kernel_in_two_cc_files(tmp_path: Path) -> None:
    library = tmp_path / "saxpy.so"
    done = build(
        *("--ops", SAMPLES / "saxpy_op.cc", "--kernels", SAMPLES / "saxpy_kernel.cc"),
        *("--shaders", SAMPLES / "saxpy_kernel.metal", "-o", library),
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saxpy.metallib", "saxpy.so"]
    output = run_on_device(f"""
saxpy = tf.load_op_library({str(library)!r}).sample_saxpy
x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
for device in ("GPU:0", "CPU:0"):
    with tf.device(device):
        z = saxpy(tf.constant(x), tf.constant(y), a=0.5)
        z = saxpy(z, tf.constant(y), a=2.0)
    assert z.device.endswith(device), z.device
    np.testing.assert_allclose(z.numpy(), 2 * (0.5 * x + 1) + 1)
    print("right on", device)
""")
    assert output.index("right on GPU:0") < output.index("SampleSaxpy ran on the CPU")


@pytest.mark.full("builds one more op")
def test_one_file_that_searches_below_the_bundle(tmp_path: Path) -> None:
    # As installed: <environment>/bin/python, and the metallib anywhere below <environment>/lib.
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    library = environment / "lib" / "python" / "site-packages" / "row_sums" / "row_sums.so"
    done = build(
        *("--kernels", SAMPLES / "row_sums.mm", "--shaders", SAMPLES / "row_sums.metal"),
        *("-o", library, "--metallib", library.with_name("_row_sums.metallib")),
    )
    assert done.returncode == 0, done.stderr
    import tensorflow as tf

    packages = f"{PACKAGE.parent}:{Path(tf.__file__).parents[1]}"
    run_on_device(
        f"""
row_sums = tf.load_op_library({str(library)!r}).sample_row_sums
matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
with tf.device("GPU:0"):
    sums = row_sums(tf.constant(matrix))
    assert sums.device.endswith("GPU:0")
    np.testing.assert_array_equal(sums.numpy(), matrix.sum(1))
    try:
        row_sums(tf.constant([1.0]))
    except tf.errors.InvalidArgumentError as error:
        assert "wants a matrix, not rank 1" in error.message
    else:
        raise AssertionError("no error")
""",
        python=environment / "bin" / "python",
        PYTHONPATH=packages,
    )


def test_what_writes_to_variables_whose_reads_are_copies_copies_nothing(tmp_path: Path) -> None:
    library = tmp_path / "copied_reads.so"
    done = build("--ops", SAMPLES / "copied_reads_op.cc", "-o", library)
    assert done.returncode == 0, done.stderr
    run_on_device(f"""
copied_reads = tf.load_op_library({str(library)!r}).sample_copied_reads
def peak():
    metal_ops.device.synchronize()
    return metal_ops.device.memory()["peak"]
def assign(slot, value):  # as v[...].assign, which reads before
    tf.raw_ops.ResourceStridedSliceAssign(
        ref=v.handle, begin=[0, 0, slot], end=[1, 1, slot + 1], strides=[1, 1, 1], value=value)
with tf.device("GPU:0"):
    v = tf.Variable(tf.zeros([1, 1, 1 << 16, 64]))  # 16 MiB
    row = 5 * tf.ones([1, 1, 1, 64])
    copied_reads(v.handle)
    before = peak()
    for slot in range(4):
        assign(slot, row)
        metal_ops.cache_rows(v, row, [slot + 4])
    assert peak() <= before + (1 << 20), (before, peak())
    held = v.read_value()  # the control: a copy
    assert peak() >= before + (8 << 20), (before, peak())
    assign(0, row + row)
    np.testing.assert_array_equal(held[0, 0, :9, 0], [5] * 8 + [0])
    np.testing.assert_array_equal(v[0, 0, :9, 0], [10] + [5] * 7 + [0])
""")


@pytest.mark.full("builds one more op")
@pytest.mark.release
def test_ops_of_other_habits(tmp_path: Path) -> None:
    # One has a class, a file enumerator and C++17 types of old headers; the other is C++20, compiles its shader at run
    # time and throws exceptions.
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    histogram = environment / "lib" / "packages" / "histogram" / "_histogram.so"
    softmax = environment / "lib" / "row_softmax.so"
    done = build(
        *("--ops", SAMPLES / "histogram_op.cc", "--kernels", SAMPLES / "histogram.mm"),
        *("--shaders", SAMPLES / "histogram.metal", "-o", histogram),
        *("--metallib", histogram.with_name("histogram.metallib")),
    )
    assert done.returncode == 0, done.stderr
    done = build("--kernels", SAMPLES / "row_softmax.mm", "-o", softmax)
    assert done.returncode == 0, done.stderr
    import tensorflow as tf

    run_on_device(
        f"""
histogram = tf.load_op_library({str(histogram)!r}).sample_histogram
row_softmax = tf.load_op_library({str(softmax)!r}).sample_row_softmax
rng = np.random.default_rng(3)
for dtype in (np.float32, np.float16):
    for height, width in ((1, 1), (5, 33), (37, 130)):
        values = rng.uniform(-0.1, 2.1, (height, width)).astype(dtype)
        with tf.device("GPU:0"):
            counts, total = histogram(tf.constant(values), bins=10, range=[0.0, 2.0])
            assert counts.device.endswith("GPU:0")
        bins = np.clip(np.floor(values.astype(np.float32) * np.float32(5)), 0, 9).astype(int)
        np.testing.assert_array_equal(counts.numpy(), np.bincount(bins.ravel(), minlength=10))
        np.testing.assert_allclose(total.numpy(), values.astype(np.float64).sum(), rtol=1e-5, atol=1e-5)
for rows, columns in ((1, 1), (3, 31), (2, 1500)):
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    e = np.exp(x.astype(np.float64))
    expected = e / e.sum(1, keepdims=True)
    with tf.device("GPU:0"):
        np.testing.assert_allclose(row_softmax(tf.constant(x)).numpy(), expected, rtol=2e-6)
        log = row_softmax(tf.constant(x), take_log=True)
        np.testing.assert_allclose(log.numpy(), np.log(expected), rtol=2e-6, atol=2e-6)
try:
    with tf.device("GPU:0"):
        row_softmax(tf.constant([1.0]))
except tf.errors.InvalidArgumentError as error:
    assert "wants rank 2, got 1" in error.message
else:
    raise AssertionError("no error")
""",
        python=environment / "bin" / "python",
        PYTHONPATH=f"{PACKAGE.parent}:{Path(tf.__file__).parents[1]}",
    )


SUBSCRIPTS = """
#import <Foundation/Foundation.h>
#import "part.h"
#define FIRST(a) ((NSNumber*)a[0])

@interface Thing : NSObject
@property(nonatomic) int count;
@end
@implementation Thing
@end

extern "C" int check() {
  @autoreleasepool {
    NSMutableArray* a = [NSMutableArray arrayWithArray:@[ @1, @2, @[ @3, @4 ] ]];
    NSMutableDictionary* d = [NSMutableDictionary dictionary];
    d[@"one"] = a[0];
    d[@"copy"] = d[@"again"] = @{@"key" : @5};
    unsigned at = 1;
    a[at] = @(6);
    int plain[2] = {7, 8};
    plain[1] = [a[at] intValue];
    if (d[@"none"] != nil || a[0] == nil) return -1;
    // "a[0]" in a text, and é before what is replaced
    const char* é = "é a[0]"; id last = é ? a[2][1] : nil;
    Thing* thing = [[[Thing alloc] init] autorelease];
    thing.count = FIRST(@[ @0 ]).intValue;
    thing.count += 1000 * [d[@"copy"][@"key"] intValue] + PART;
    return thing.count + [d[@"one"] intValue] + 10 * plain[1] + 100 * [last intValue];
  }
}
"""


def test_subscripts_of_objects(tmp_path: Path) -> None:
    """array[i] and dictionary[key], read and assigned, nested, in macros; a property without @synthesize."""
    (tmp_path / "part.h").write_text("#define PART 10000\n")
    (tmp_path / "op.mm").write_text(SUBSCRIPTS)
    done = build("--kernels", "op.mm", "-o", "op.so", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    code = "import ctypes, tensorflow; print(ctypes.CDLL('./op.so').check())"
    _, out, err = Process("-c", code, cwd=tmp_path).finish()
    assert out == "15461\n", out + err


def test_errors_beside_subscripts_keep_their_place(tmp_path: Path) -> None:
    (tmp_path / "op.mm").write_text(
        "#import <Foundation/Foundation.h>\nid f(NSArray* a) { return a[0]; }\nint g() { return wrong; }\n"
    )
    done = build("--kernels", "op.mm", "-o", "op.so", cwd=tmp_path)
    assert done.returncode == 1 and "op.mm:3:" in done.stderr and "wrong" in done.stderr, (
        done.stderr
    )


def test_hosts_in_plain_c_have_atomics(tmp_path: Path) -> None:
    """clang's <stdatomic.h> includes the next one: GCC's, beside the Objective-C headers, is not for it."""
    (tmp_path / "host.m").write_text("""
#include <stdatomic.h>
#import <Metal/Metal.h>
static atomic_int count = ATOMIC_VAR_INIT(3);
static atomic_flag once = ATOMIC_FLAG_INIT;
int next(void) { return atomic_flag_test_and_set(&once) + atomic_fetch_add_explicit(&count, 2, memory_order_relaxed); }
""")
    options = [f for f in flags.objcxx_flags() if f not in ("-std=c++17", "-x", "objective-c++")]
    for language in ("objective-c", "c"):
        text = (tmp_path / "host.m").read_text()
        if language == "c":
            text = text.replace("#import <Metal/Metal.h>\n", "")
        command = [*flags.compiler(), "-x", language, *options, "-c", "-o", "host.o", "-"]
        done = subprocess.run(command, cwd=tmp_path, input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        metal = flags.metal_link_flags() if language == "objective-c" else []
        link = [*flags.compiler(), "-shared", "host.o", "-o", f"{language}.so", *metal]
        subprocess.run(link, cwd=tmp_path, check=True)
        import ctypes

        library = ctypes.CDLL(str(tmp_path / f"{language}.so"))
        assert [library.next() for _ in range(3)] == [3, 6, 8]


def test_constants_of_apples_headers(tmp_path: Path) -> None:
    (tmp_path / "op.mm").write_text("""
#import <Metal/Metal.h>
#include <cstddef>
static_assert(__is_same(decltype(nil), std::nullptr_t));
id<MTLLibrary> load(id<MTLDevice> device, NSURL* url) {
  NSDictionary* flags = @{@"on" : @YES, @"off" : @NO};
  return [flags count] == 2 ? [device newLibraryWithURL:url error:nil] : nil;
}
""")
    done = build("--kernels", "op.mm", "-o", "op.so", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


# Two ops on this library's own face, by the headers' names of before; samples/launches.mm has today's.
CUBE = """
#include "kernels/common/encoder.h"
#include "kernels/common/registrar.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("SampleCube").Input("x: float").Output("y: float").SetShapeFn(
    tensorflow::shape_inference::UnchangedShape);

namespace {
using namespace metal_ops;
struct CubeOp {
  static constexpr char kOp[] = "SampleCube";
  explicit CubeOp(KernelConstruction*) {}
  void Compute(KernelContext* ctx) {
    Tensor x, y;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &x));
    OP_REQUIRES(ctx, x.rank() == 1, InvalidArgument("SampleCube: x: expected rank 1, got ", x.rank()));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, x.shape(), &y));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(Shader("cube").Constant(0, 3.0f), Grid(x.dim(0)), {{"x", x}, {"y", y}});
    }));
  }
};
REGISTER_METAL_KERNEL(CubeOp);
}  // namespace
"""
TWICE = r"""
namespace {
using namespace metal_ops;
template <typename Op>
struct TwiceOp {
  static constexpr const char* kOp = Op::kOp;
  explicit TwiceOp(KernelConstruction*) {}
  void Compute(KernelContext* ctx) {
    Tensor x, y;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &x));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, x.shape(), &y));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"twice", x.dtype()}, Grid(x.num_elements()), {{"x", x}, {"y", y}});
    }));
  }
};
#define OP(name)                                                                              \
  REGISTER_OP("Sample" #name).Attr("T: {float, half, bfloat16}").Input("x: T").Output("y: T") \
      .SetShapeFn(tensorflow::shape_inference::UnchangedShape);                               \
  struct name { static constexpr char kOp[] = "Sample" #name; }
OP(Listed);
OP(Said);
OP(Any);
OP(Kept);
REGISTER_METAL_KERNEL(TwiceOp<Listed>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));
REGISTER_METAL_KERNEL(TwiceOp<Said>, .Where("T", TF_FLOAT));
REGISTER_METAL_KERNEL(TwiceOp<Said>, .Where("T", TF_BFLOAT16));
REGISTER_METAL_KERNEL(TwiceOp<Any>);
REGISTER_METAL_KERNEL(TwiceOp<Kept>, .Types("T", {TF_FLOAT, TF_BFLOAT16}).CalculatesInNoBfloat());
}  // namespace
"""
SHADERS = """
#include <metal_stdlib>
#include "kernels/msl/instantiate.h"
using namespace metal;
constant float power [[function_constant(0)]];
kernel void cube(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  y[i] = power == 3.0f ? x[i] * x[i] * x[i] : 0.0f;
}
template <typename T>
kernel void twice(device const T* x [[buffer(0)]], device T* y [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
  y[i] = T(2.0f * float(x[i]));
}
INSTANTIATE_KERNEL("twice_float", twice, float)
INSTANTIATE_KERNEL("twice_half", twice, half)
IF_BFLOAT(INSTANTIATE_KERNEL("twice_bfloat", twice, bfloat))
"""


@pytest.fixture(scope="module")
def own_face(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The library of both ops for a macOS: one compilation, as each reads TensorFlow's headers anew."""

    @functools.cache
    def of(macos: str) -> Path:
        folder = tmp_path_factory.mktemp("own_face")
        (folder / "ops.mm").write_text(CUBE + TWICE)
        (folder / "ops.metal").write_text(SHADERS)
        options = ("--kernels", "ops.mm", "--shaders", "ops.metal", "-o", "ops.so")
        std = f"--shader-option=-std={'metal3.0' if macos == '13.0' else 'metal3.1'}"
        done = build(*options, std, cwd=folder, MACOS_OF_METAL=macos)
        assert done.returncode == 0, done.stderr
        return folder / "ops.so"

    return of


def test_an_op_on_this_librarys_own_face(own_face: Callable[[str], Path]) -> None:
    run_on_device(f"""
cube = tf.load_op_library({str(own_face("13.0"))!r}).sample_cube
with tf.device("GPU:0"):
    assert cube(tf.constant([1.0, 2.0, -3.0])).numpy().tolist() == [1, 8, -27]
    assert cube(tf.constant(np.zeros(0, np.float32))).shape == [0]
    try:
        cube(tf.constant(1.0))
    except tf.errors.InvalidArgumentError as error:
        assert "expected rank 1, got 0" in error.message
    else:
        raise AssertionError("no error")
""")


@pytest.mark.parametrize(
    "macos", [pytest.param("14.0", marks=pytest.mark.full("the control")), "13.0"]
)
def test_built_for_macos_13_there_are_no_kernels_of_bfloat16(
    own_face: Callable[[str], Path], macos: str
) -> None:
    """Host code as on Macs of that age, here; Linux' own is always for Metal 3.1."""
    run_on_device(f"""
ops = tf.load_op_library({str(own_face(macos))!r})
without = {macos == "13.0"}
def said(op, dtype):
    try:
        with tf.device("GPU:0"):
            y = op(tf.constant([1.5, -2.0], dtype))
        assert y.numpy().tolist() == [3, -4] and "GPU" in y.device, y
    except tf.errors.OpError as error:
        return error.message
    return ""
for op in (ops.sample_listed, ops.sample_said, ops.sample_any, ops.sample_kept):
    assert said(op, tf.float32) == ""
    error = said(op, tf.bfloat16)
    assert bool(error) == without, error
    if without and op in (ops.sample_listed, ops.sample_said):
        assert "Could not find device for node" in error and "DT_BFLOAT16" in error, error
    elif without:
        assert "the shader 'twice_bfloat' calculates in bfloat16, which shaders have from macOS 14 on" in error, error
        assert "built for macOS 13" in error and "'make metal MACOS_OF_METAL=14.0'" in error, error
assert said(ops.sample_listed, tf.float16) == ""
""")


@pytest.mark.parametrize(
    ("text", "expected"),
    (
        ("#import <Metal/Metal.h>\n", True),
        ("#include <Metal/Metal.h>\n", True),
        ("int x;\n@protocol TF_MetalStream\n@end\n", True),
        ("void f() { @autoreleasepool { } }\n", True),
        ('#include "tensorflow/core/framework/op.h"\n', False),
        ("// writes to name@interface\nint x;\n", False),
    ),
)
def test_objective_c_is_found_by_content(tmp_path: Path, text: str, expected: bool) -> None:
    source = tmp_path / "kernel.cc"
    source.write_text(text)
    assert builder.is_objective_c(source) == expected


TENSORFLOW = Path(flags.tensorflow_flags()[0][1])


@pytest.mark.release
def test_headers_of_older_releases(tmp_path: Path) -> None:
    (tmp_path / "part.h").write_text('#include "third_party/eigen3/Eigen/Core"\n')
    (tmp_path / "old.cc").write_text("""
#include "part.h"
#include "tensorflow/compiler/xla/tsl/util/determinism.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/lib/core/blocking_counter.h"
#include "tensorflow/core/lib/core/errors.h"
#include "tensorflow/core/lib/core/status.h"
#include "tensorflow/core/lib/random/philox_random_test_utils.h"
#include "tensorflow/core/platform/default/logging.h"
#include "tensorflow/core/platform/default/notification.h"
#include "tensorflow/tsl/framework/allocator.h"
#include "tensorflow/tsl/platform/types.h"
#include "tensorflow/tsl/util/determinism.h"
#include "third_party/eigen3/unsupported/Eigen/CXX11/Tensor"
#include "tsl/framework/allocator.h"
#include "unsupported/Eigen/CXX11/src/util/MaxSizeVector.h"
tensorflow::Status nothing_wrong() { return tensorflow::Status::OK(); }
Eigen::Tensor<float, 2> tensor(2, 3);
tensorflow::BlockingCounter counter(1);
tsl::Allocator* allocator = nullptr;
""")
    done = build("--ops", "old.cc", "-o", "old.so", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_every_header_of_older_releases_that_moved(tmp_path: Path) -> None:
    """old_headers.txt: names in earlier packages that differ from this one's, without those that are gone."""
    folders = [TENSORFLOW, *headers.link_moved(TENSORFLOW, tmp_path / "moved")]
    names = (Path(__file__).parent / "old_headers.txt").read_text().split()
    assert len(names) > 400
    assert not [name for name in names if not any((f / name).is_file() for f in folders)]
    # A rule that leads nowhere is a wrong one. Links are all that is made.
    for old, *places in headers.MOVED:
        assert any((TENSORFLOW / new).is_dir() for new in places), old
    made = list((tmp_path / "moved").rglob("*"))
    assert made and all(path.is_dir() for path in made)
    assert not [
        f for f in folders[1:] for path in f.rglob("*") if path.is_symlink() and path.is_file()
    ]


HOSTILE_NAMES = {
    "parents": "tensorflow/core/lib/{up}{victim}",
    "parents of a moved folder": "third_party/eigen3/Eigen/{up}{victim}",
    "absolute": "/{victim}",
    "absolute below": "tensorflow/core/lib//{victim}",
    "link in the source tree": "tensorflow/core/lib/link.h",
    "NUL": "tensorflow/core/lib/a\0{victim}",
    "long": "tensorflow/core/lib/" + "a" * 5000,
    "long path": "tensorflow/core/lib/" + "a/" * 5000 + "b.h",
    "not UTF-8": "tensorflow/core/lib/\udcff\udcfe.h",
    "own face": "kernels/runtime/" + "e" * 5000 + ".h",
}


@pytest.mark.parametrize("name", HOSTILE_NAMES.values(), ids=HOSTILE_NAMES)
def test_includes_of_foreign_sources_write_nothing(tmp_path: Path, name: str) -> None:
    """Even in a branch that is not compiled, an include was once a path that a file was written to."""
    victim, work, scratch = tmp_path / "victim.h", tmp_path / "work", tmp_path / "scratch"
    victim.write_text("kept\n")
    scratch.mkdir()
    (work / "tensorflow/core/lib").mkdir(parents=True)
    (work / "tensorflow/core/lib/link.h").symlink_to(victim)
    # Where the parents lead depends on where TensorFlow and the scratch folder lie: all depths.
    names = [name.format(victim=str(victim)[1:], up="../" * depth) for depth in range(40)]
    lines = "".join(f'#include "{name}"\n' for name in dict.fromkeys(names))
    text = f"#if 0\n{lines}#endif\nint x;\n"
    (work / "op.cc").write_bytes(text.encode(errors="surrogateescape"))
    before = sorted(tmp_path.rglob("*"))
    done = build("--ops", "op.cc", "-I", ".", "-o", "op.so", cwd=work, TMPDIR=str(scratch))
    assert done.returncode == 0, done.stderr
    assert victim.read_text() == "kept\n"
    assert sorted(tmp_path.rglob("*")) == sorted([*before, work / "op.so"])


def test_links_at_names_that_can_be_guessed_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "ok.cc").write_text("int x;\n")
    for name in (f".a.{os.getpid()}.so", "a.so"):
        (tmp_path / name).symlink_to(victim)
    builder.build_op([tmp_path / "ok.cc"], output=tmp_path / "a.so")
    assert victim.read_text() == "kept" and not (tmp_path / "a.so").is_symlink()


def test_names_that_a_compiler_takes_for_options(tmp_path: Path) -> None:
    (tmp_path / "-DX=1.cc").write_text('extern "C" int one() { return 1; }\n')
    (tmp_path / "@two.cc").write_text('extern "C" int two() { return 2; }\n')
    shader = "#include <metal_stdlib>\nkernel void f(device float* x [[buffer(0)]]) { x[0] = 1; }\n"
    (tmp_path / "-f.metal").write_text(shader)
    code = "from metal_ops.build import build_op; build_op(['-DX=1.cc', '@two.cc'], ['-f.metal'], 'a.so')"
    ended, _, err = Process("-c", code, cwd=tmp_path).finish()
    assert ended == 0, err
    import ctypes

    library = ctypes.CDLL(str(tmp_path / "a.so"))
    assert library.one() == 1 and library.two() == 2


def test_lists_may_be_given_in_parts(tmp_path: Path) -> None:
    """`--ops a.cc --ops b.cc` once forgot the first."""
    for i, name in enumerate(("a.cc", "b.cc", "c.mm", "d.mm")):
        (tmp_path / name).write_text(f'extern "C" int {name[0]}() {{ return {i}; }}\n')
    for name in ("e", "f"):
        (tmp_path / f"{name}.metal").write_text(
            f"#include <metal_stdlib>\nkernel void {name}(device float* x) {{ x[0] = 1; }}\n"
        )
    options = ("--ops", "a.cc", "--ops", "b.cc", "--kernels", "c.mm", "--kernels", "d.mm")
    shaders = ("--shaders", "e.metal", "--shaders", "f.metal")
    done = build(*options, *shaders, "-o", "all.so", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    import ctypes

    from metal_ops.metal.launch import Library

    library = ctypes.CDLL(str(tmp_path / "all.so"))
    assert [getattr(library, name)() for name in "abcd"] == [0, 1, 2, 3]
    assert set(Library(tmp_path / "all.metallib").kernels) == {"e", "f"}


def test_a_script_that_loads_no_device_itself(tmp_path: Path) -> None:
    # An op of the name that a sample registers and this library too.
    for name in ("saxpy_op.cc", "saxpy_kernel.cc"):
        text = (SAMPLES / name).read_text().replace("SampleSaxpy", "ZeroOut")
        (tmp_path / name).write_text(text)
    done = build(
        *("--ops", "saxpy_op.cc", "--kernels", "saxpy_kernel.cc"),
        *("--shaders", SAMPLES / "saxpy_kernel.metal", "-o", "zero_out.so"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "helper.py").write_text("A = 2.0\n")
    (tmp_path / "script.py").write_text("""
import os, sys
import tensorflow as tf
import helper
assert sys.argv[1:] == ["--scale", "2"] and __name__ == "__main__"
tf.config.set_soft_device_placement(False)
library = tf.load_op_library(os.path.join(os.path.dirname(os.path.abspath(__file__)), "zero_out.so"))
z = library.zero_out(tf.constant([1.0, 2.0]), tf.constant([1.0, 1.0]), a=helper.A)
print(z.numpy(), z.device[-5:])
""")
    command = ("-m", "metal_ops", "run", str(tmp_path / "script.py"), "--scale", "2")
    code, out, err = Process(*command).finish()
    assert code == 0, err
    assert "[3. 5.] GPU:0" in out


def test_run_without_a_script() -> None:
    command = [sys.executable, "-m", "metal_ops", "run", "no.py"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and "the script no.py does not exist" in ran.stderr


BAD = {
    "missing source": (["--ops", "no.cc", "-o", "a.so"], "the source no.cc does not exist"),
    "missing shader": (
        ["--ops", "ok.cc", "--shaders", "no.metal", "-o", "a.so"],
        "no.metal does not",
    ),
    "suffix of a source": (["--ops", "ok.metal", "-o", "a.so"], "should end in .cc"),
    "suffix of a shader": (["--ops", "ok.cc", "--shaders", "ok.cc", "-o", "a.so"], "end in .metal"),
    "suffix of the output": (["--ops", "ok.cc", "-o", "a.txt"], "should end in .so"),
    "no sources": (["--shaders", "ok.metal", "-o", "a.so"], "no sources given"),
    "long source": (["--ops", "a" * 300 + ".cc", "-o", "a.so"], "File name too long"),
    "long output": (["--ops", "ok.cc", "-o", "a" * 300 + ".so"], "File name too long"),
    "folder as output": (["--ops", "ok.cc", "-o", "folder.so"], "Is a directory"),
    "file as folder": (["--ops", "ok.cc", "-o", "ok.cc/a.so"], "File exists"),
    "bytes that are no text": (["--ops", "bytes.cc", "-o", "a.so"], "bytes.cc:1:"),
    "C++ error": (["--ops", "bad.cc", "-o", "a.so"], "bad.cc:2:"),
    "shader error": (["--ops", "ok.cc", "--shaders", "bad.metal", "-o", "a.so"], "bad.metal:3:"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_says_what_is_wrong(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "ok.cc").write_text("int x;\n")
    (tmp_path / "bad.cc").write_text("int x;\nint y = z;\n")
    (tmp_path / "bytes.cc").write_bytes(b"int \xff\xfe; // \xe9\nint \0 y;\n")
    (tmp_path / "folder.so").mkdir()
    kernel = "kernel void f(device float* x [[buffer(0)]]) { x[0] = 1; }\n"
    (tmp_path / "ok.metal").write_text(f"#include <metal_stdlib>\nusing namespace metal;\n{kernel}")
    (tmp_path / "bad.metal").write_text(
        "#include <metal_stdlib>\nusing namespace metal;\nkernel void f(device double* x) {}\n"
    )
    before = sorted(path.name for path in tmp_path.iterdir())
    done = build(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("metal_ops build: ") and message in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before  # nothing half-written


def test_a_missing_compiler_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ok.cc").write_text("int x;\n")
    monkeypatch.setenv("METAL_OPS_CXX", "no-such-compiler")
    with pytest.raises(
        builder.BuildError, match="no-such-compiler was not found; run 'sudo apt-get"
    ):
        builder.build_op([tmp_path / "ok.cc"], output=tmp_path / "a.so")
    monkeypatch.delenv("METAL_OPS_CXX")
    monkeypatch.setattr(flags.shutil, "which", lambda _: None)
    with pytest.raises(builder.BuildError, match="clang was not found.*run 'sudo apt-get install"):
        builder.build_op([tmp_path / "ok.cc"], output=tmp_path / "a.so")


def test_the_package_carries_the_headers() -> None:
    # A wheel holds the files below the package; links into the checkout are followed.
    for header in (
        "hostmetal/Metal/Metal.h",
        "hostmetal/dispatch/dispatch.h",
        "hostmetal/compat/sys/_types/_int32_t.h",
        "compat/metal_ops_compat.h",
        "kernels/runtime/encoder.h",
        "kernels/runtime/encoder.mm",
        "kernels/msl/instantiate.h",
        "support/main_bundle.mm",
    ):
        assert (flags.INCLUDE / header).is_file(), header
    project = (PACKAGE.parents[1] / "pyproject.toml").read_text()
    assert '"include/**/*"' in project
