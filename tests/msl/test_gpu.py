"""Code for NVIDIA GPUs, where none is: ptxas assembles all shaders, and gpu_math.h is compared with float64 on the CPU."""

import ctypes
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from metal_ops.metal import (
    CompileError,
    Options,
    cli,
    compile_object,
    compiler,
    gpu,
    link,
    toolchain,
)

from .shaders import HEADER, path

pytestmark = pytest.mark.compiler

ROOT = Path(__file__).resolve().parents[2]
SHADERS = sorted(
    str(file.relative_to(ROOT))
    for room in ("kernels", "device", "tools")
    for file in (ROOT / room).rglob("*.metal")
)


def ptx(source: str, target: str = "sm_90", **options) -> str:
    return compiler.gpu_text(
        "test.metal", Options(validation=False, gpu=(target,), **options), HEADER + source, target
    )


# Bytes of instructions that spill, where it is more than 256; with relu's constants set it is less than for all of them.
MOST_SPILLED = {
    "fused_mlp_groups_backward_half_128": 320,
    # A network's sizes are constants. Without them all networks are in the code: with those of the largest it is 172.
    "fused_mlp_gradient_half_64": 2050,
    "fused_mlp_gradient_bfloat_64": 1800,
    "fused_mlp_gradient_half_32": 1120,
    # 16 keys, their values and the sums of both gradients: of 128 elements each they are more than a thread has.
    "attention_groups_d_kv_half_128": 5000,
    "attention_groups_d_kv_bfloat_128": 5000,
    "attention_groups_d_kv_half_64": 480,
    "attention_groups_d_kv_bfloat_64": 480,
    "attention_groups_d_kv_float_128": 960,
    "attention_groups_d_kv_float_64": 960,
    # Masks, biases and dropout are constants, too: without them it is 104 and 24.
    "attention_warpgroups_half_64": 4100,
    "attention_warpgroups_bfloat_64": 4100,
    "attention_warpgroups_half_128": 780,
    "attention_warpgroups_bfloat_128": 780,
    "attention_warpgroups_d_q_half_128": 1200,
    "attention_warpgroups_d_q_bfloat_128": 1200,
    "attention_warpgroups_d_kv_half_128": 2100,
    "attention_warpgroups_d_kv_bfloat_128": 2100,
    "attention_warpgroups_d_kv_half_64": 3800,
    "attention_warpgroups_d_kv_bfloat_64": 3800,
    # Without them 260 and 320 on Hopper, most of it in the simdgroups that bring tiles. No host launches those for sm_80.
    "attention_turns_d_all_half_128": 4800,
    "attention_turns_d_all_bfloat_128": 4800,
    "attention_turns_d_all_half_64": 23500,
    "attention_turns_d_all_bfloat_64": 23500,
    "attention_groups_half_256": 320,
    "attention_groups_bfloat_256": 400,
    "attention_d_bias_half_1": 480,
}


# Assembled for all targets: whose text depends on the target, and of the others one of a kind, with all of its types.
FOR_ALL_TARGETS = {
    *("device/kernels/copy.metal", "device/kernels/elementwise.metal"),
    *("device/kernels/random.metal", "kernels/row_norm/row_norm.metal"),
    *("device/kernels/nn/conv_warpgroups.metal", "kernels/gemm/conv_warpgroups.metal"),
    *("device/kernels/nn/gemm_blocks.metal", "device/kernels/nn/gemm_conv.metal"),
    *("device/kernels/nn/gemm_warpgroups.metal", "device/kernels/nn/loss.metal"),
    *("kernels/attention/attention.metal", "kernels/attention/attention_warpgroups.metal"),
    "kernels/attention/attention_turns_gradient.metal",
    "kernels/attention/attention_warpgroups_gradient.metal",
    *("kernels/gemm/gemm_blocks.metal", "kernels/gemm/gemm_conv.metal"),
    *("kernels/gemm/gemm_warpgroups.metal", "kernels/hamming_distance/hamming_distance.metal"),
    *("kernels/hash_encode/hash_encode.metal", "kernels/hash_encode/hash_encode_table.metal"),
    "kernels/quantized_matmul/quantized_matmul.metal",
}


# The quick ones of these, for the newest target: the others are minutes of work.
ONE_OF_A_KIND = {
    *("device/kernels/copy.metal", "device/kernels/nn/loss.metal"),
    *("kernels/hash_encode/hash_encode.metal", "kernels/row_norm/row_norm.metal"),
}
MINUTES = "compiling all shaders for GPUs takes minutes"


def flat(file: str, target: str) -> str:
    """The text of a shader for a target, all headers included."""
    options = Options(include=(".",), gpu=(target,))
    defines = options.language_defines("NVPTX") + gpu.defines(target)
    return compiler._flat(file, None, options, defines)


def test_shaders_for_all_targets_exist() -> None:
    assert FOR_ALL_TARGETS <= set(SHADERS)


@pytest.mark.parametrize(
    "file, target",
    [
        pytest.param(file, target, marks=[] if few else [pytest.mark.full(MINUTES)])
        for file in SHADERS
        for target in gpu.TARGETS
        for few in [target == gpu.TARGETS[-1] and file in ONE_OF_A_KIND]
    ],
)
def test_library_shaders_assemble(file: str, target: str, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    if file not in FOR_ALL_TARGETS:
        texts = {flat(file, each) for each in gpu.TARGETS}
        assert len(texts) == 1, "it asks for the target: name it in FOR_ALL_TARGETS"
    usages = compiler.gpu_usage(file, Options(include=(".",), gpu=(target,)))
    assert usages and {usage.target for usage in usages} == {target}
    # A kernel that spills much gains nothing from a GPU.
    most = {usage.kernel: MOST_SPILLED.get(usage.kernel, 256) for usage in usages}
    assert not [usage for usage in usages if usage.spilled_bytes > most[usage.kernel]]
    # A threadgroup of 256 threads fits every pipeline.
    assert max(usage.registers for usage in usages) <= 255


# Source of one kernel, and the text that its PTX must (or, with a !, must not) have.
CASES = {
    "device memory": (
        "kernel void k(device const float* a, device float* b, uint i [[thread_position_in_grid]]) { b[i] = a[i]; }",
        [r"ld\.global\.f32", r"st\.global\.f32", r"!\.local", r"!cvta\.to"],
    ),
    "constant memory is read-only": (
        "kernel void k(constant float* a, device float* b, uint i [[thread_position_in_grid]]) { b[i] = a[i]; }",
        [r"ld\.global\.nc\.f32"],
    ),
    "small constants come by value": (
        "struct P { float a; uint n; };\n"
        "kernel void k(constant P& p, device float* b, uint i [[thread_position_in_grid]]) { if (i < p.n) b[i] = p.a; }",
        [r"\.b8 msl_k_param_1\[16\]", r"ld\.param\.v2\.u32 .*\+8\]", r"!\.local"],
    ),
    "large ones by pointer": (
        "struct P { float a[65]; };\n"
        "kernel void k(constant P& p, device float* b, uint i [[thread_position_in_grid]]) { b[i] = p.a[i % 65]; }",
        [r"\.b8 msl_k_param_1\[8\]", r"!\.local"],
    ),
    "threadgroup memory": (
        "kernel void k(device float* b, threadgroup float* t, uint i [[thread_index_in_threadgroup]]) {\n"
        "threadgroup float s[64]; s[i] = t[i]; threadgroup_barrier(mem_flags::mem_threadgroup); b[i] = s[i ^ 1]; }",
        [r"\.shared \.align 4 \.b8 \w+\[256\];", r"bar\.sync \s*0", r"ld\.shared\.f32", r"!= *\{"],
    ),
    "atomics are instructions": (
        "kernel void k(device atomic_float* a, device atomic_uint* b, threadgroup atomic_int* c) {\n"
        "atomic_fetch_add_explicit(a, 1.0f, memory_order_relaxed); atomic_fetch_max_explicit(b, 3u, memory_order_relaxed);\n"
        "atomic_fetch_add_explicit(c, 1, memory_order_relaxed); }",
        [r"atom\.global\.add\.f32", r"atom\.global\.max\.u32", r"atom\.shared\.add\.u32", r"!\.cas"],
    ),
    "fences": (
        "kernel void k(device atomic_uint* a, device uint* b, constant ulong& to) {\n"
        "b[0] = atomic_load_explicit(a, memory_order_acquire);\n"
        "atomic_thread_fence(mem_flags::mem_threadgroup, memory_order_release, thread_scope_threadgroup);\n"
        "atomic_thread_fence(mem_flags::mem_device, memory_order_relaxed); b[1] = 1;\n"
        "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_system);\n"
        "atomic_store_explicit(reinterpret_cast<device atomic_uint*>(to), 2u, memory_order_relaxed); }",
        # Loads and stores as every device sees them, not out of a cache of this one.
        [r"fence\.acq_rel\.gpu;\s+ld\.volatile\.global\.u32 .*\s+fence\.acq_rel\.gpu;", r"fence\.acq_rel\.cta;",
         r"(?s)fence\.sc\.sys;((?!fence).)*st\.volatile\.global\.u32", r"!(?s)(fence.*){5}"],
    ),
    "sums of neighbours": (
        "kernel void k(device atomic_float* a) {\n"
        "#ifdef __HAVE_ATOMIC_FLOAT_VECTOR__\n_msl::atomic_add2(a, 1, 2); _msl::atomic_add4(a + 4, 1, 2, 3, 4);\n#endif\n}",
        [r"red\.relaxed\.gpu\.global\.add\.v2\.f32", r"red\.relaxed\.gpu\.global\.add\.v4\.f32"],
    ),
    "simdgroup functions": (
        "kernel void k(device float* a, uint i [[thread_position_in_grid]]) { a[i] = simd_sum(a[i]); }",
        [r"activemask", r"shfl\.sync\.idx\.b32"],
    ),
    "half matrices": (
        "kernel void k(device half* a) { simdgroup_half8x8 x, y; simdgroup_load(x, a); simdgroup_load(y, a + 64);\n"
        "simdgroup_multiply(x, x, y); simdgroup_store(x, a); }",
        [r"mma\.sync\.aligned\.m16n8k8", r"movmatrix"],
    ),
    "matrices of four simdgroups": (
        "#ifdef __HAVE_WARPGROUP_MATRIX__\nstruct S { float part[4]; };\n"
        "kernel void k(device float* a, threadgroup half* t) { S s[8]; _msl::begin_products();\n"
        "_msl::multiply_64<half, false, true>(s, _msl::matrix_at(t, 16), _msl::matrix_at(t + 4096, 16), false);\n"
        "_msl::end_products(); _msl::wait_for_products<0>(); a[0] = s[0].part[0] + s[7].part[3]; }\n#endif",
        [r"wgmma\.mma_async\.sync\.aligned\.m64n64k16\.f32\.f16\.f16", r"p, 1, 1, 0, 1;", r"\.target sm_90\n"],
    ),
    "function constants": (
        "constant uint w [[function_constant(3)]]; constant bool twice = w == 2;\n"
        "kernel void k(device uint* a, uint i [[thread_position_in_grid]]) { a[i] = twice ? 2 : w; }",
        [r"\.extern \.global .* _msl_fc_w", r"!_msl_fc_twice"],
    ),
    "limits": (
        "[[max_total_threads_per_threadgroup(128)]] kernel void k(device uint* a) { a[0] = 1; }",
        [r"\.entry msl_k\([^{]*\.maxntid 128, 1, 1\s*\{"],
    ),
    "registers that are handed on": (
        "#if defined(__HAVE_WARPGROUP_MATRIX__)\n[[max_total_threads_per_threadgroup(384)]] kernel void k(\n"
        "device float* a, threadgroup float* t, uint i [[simdgroup_index_in_threadgroup]]) {\n"
        "_msl::begin_products(); if (i >= 8) { _msl::give_registers<40>(); _msl::come_to(1, 384); return; }\n"
        "_msl::take_registers<232>(); _msl::meet_at(1, 384); _msl::wait_for_number(a, 2); _msl::begin_stores();\n"
        "_msl::add_floats(a, t, 16); _msl::end_stores(); _msl::wait_for_stores(); _msl::tell_number(a, 3); }\n#endif",
        [r"\.entry msl_k\([^{]*\.maxntid 384, 1, 1\n\.minnctapersm 1\s*\{", r"setmaxnreg\.dec\.sync\.aligned\.u32 40;",
         r"bar\.arrive", r"ld\.acquire\.gpu\.global", r"cp\.reduce\.async\.bulk", r"st\.release\.gpu\.global"],
    ),
    "overloads by address space": (
        "constant float c = 7;\n"
        "[[clang::noinline]] float f(device const float* p) { return p[0]; }\n"
        "[[clang::noinline]] float f(threadgroup const float* p) { return p[1]; }\n"
        "[[clang::noinline]] float f(constant float* p) { return p[2]; }\n"
        "[[clang::noinline]] float f(thread const float* p) { return p[3]; }\n"
        "kernel void k(device float* a, constant float* b, threadgroup float* t) { float x[4] = {a[4], a[5], a[6], a[7]};\n"
        "a[0] = f(a); a[1] = f(t); a[2] = f(b); a[3] = f(x) + c; }",
        [r"ld\.shared\.f32 .*\+4\];", r"ld\.global\.nc\.f32 .*\+8\];", r"ld\.global\.f32 .*\+28\];", r"0f40E00000"],
    ),
    "names": (
        'template <class T> kernel void f(device T* a) { a[0] = 1; }\n'
        'template [[host_name("k<a b>")]] kernel void f<int>(device int*);',
        [r"\.entry msl_k\$3ca\$20b\$3e\("],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "target"),
    [*((name, "sm_90") for name in CASES), ("overloads by address space", "sm_80")],
)
def test_code(name: str, target: str) -> None:
    source, expected = CASES[name]
    text = ptx(source, target)
    for pattern in expected:
        found = re.search(pattern.removeprefix("!"), text)
        assert bool(found) != pattern.startswith("!"), f"{pattern}\n{text}"
    assert [usage.target for usage in gpu.assemble(text, target)] == [target]


@pytest.mark.parametrize("target", gpu.TARGETS)
def test_fast_math_flushes_floats_alone(target: str) -> None:
    source = """kernel void k(device float* a, device half* h, device bfloat* b, uint i [[thread_position_in_grid]]) {
a[i] = a[i] * a[i + 1]; h[i] = h[i] * h[i + 1]; b[i] = b[i] * b[i + 1]; a[i + 2] = float(h[i + 2]) * 3.0f; }"""
    exact, fast = ptx(source, target), ptx(source, target, fast_math=True)
    assert ".ftz" not in exact and re.search(r"mul\.rn\.f32", exact)
    assert re.search(r"mul\.ftz\.f32", fast) and not re.search(r"mul(\.rn)?\.f32", fast)
    assert re.search(r"mul\.f16", fast) and not re.search(r"\.ftz\.b?f16", fast)
    assert [usage.target for usage in gpu.assemble(fast, target)] == [target]


def test_the_assembler_is_asked_once(tmp_path, monkeypatch) -> None:
    """One text is asked about once; another text, target or assembler is another question, and failures
    are asked again."""
    tool = tmp_path / "ptxas"

    def assembler(version: int) -> None:
        tool.write_text(f"""#!/bin/sh
[ "$1" != --version ] || exec echo {version}
echo "$1" >>{tmp_path}/asked
exec {real} "$@"
""")
        tool.chmod(0o755)

    def asked(text: str, target: str) -> int:
        (tmp_path / "asked").write_text("")
        usages = gpu.assemble(text, target)
        assert [(usage.kernel, usage.target) for usage in usages] == [("k", target)]
        return len((tmp_path / "asked").read_text().splitlines())

    real = gpu.ptxas()
    first = time.time_ns()  # the cache has no answer of these assemblers
    texts = {t: ptx("kernel void k(device float* a) { a[0] = 1; }", t) for t in gpu.TARGETS}
    assembler(first)
    monkeypatch.setenv("METAL_OPS_PTXAS", str(tool))
    for target, text in texts.items():
        assert [asked(text, target) for _ in range(2)] == [1, 0]
    other = texts["sm_90"].replace("ret;", "ret; // another text")
    assert [asked(other, "sm_90") for _ in range(2)] == [1, 0]
    assembler(first + 1)
    assert [asked(other, "sm_90") for _ in range(2)] == [1, 0]
    for _ in range(2):
        with pytest.raises(CompileError, match="ptxas failed for sm_80"):
            asked(other.replace("ret;", "nonsense;"), "sm_80")
        assert (tmp_path / "asked").read_text() == "-arch=sm_80\n"


def test_metallib_holds_both() -> None:
    """The text lies beside the CPU's code, one a target, and nothing is there that was not asked for."""
    source = HEADER + "kernel void k(device float* a) { a[0] = sin(a[0]); }"

    class Code(ctypes.Structure):
        _fields_ = [
            ("target", ctypes.c_char_p),
            ("text", ctypes.c_char_p),
            ("length", ctypes.c_uint64),
        ]

    class Codes(ctypes.Structure):
        _fields_ = [("begin", ctypes.POINTER(Code)), ("end", ctypes.POINTER(Code))]

    for targets in ((), ("sm_80",), ("sm_80", "sm_90")):
        data, _ = compile_object("test.metal", Options(validation=False, gpu=targets), source)
        file = path(f"both{len(targets)}.metallib")
        file.write_bytes(link([data]))
        codes = Codes.in_dll(ctypes.CDLL(str(file)), "metallib_gpu_v1")
        begin, end = (ctypes.cast(p, ctypes.c_void_p).value or 0 for p in (codes.begin, codes.end))
        found = [codes.begin[i] for i in range((end - begin) // ctypes.sizeof(Code))]
        assert tuple(code.target.decode() for code in found) == targets
        for code in found:
            assert len(code.text) == code.length and b".entry msl_k(" in code.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--gpu=sm_70", "x.metal"],
            "invalid value 'sm_70' in '--gpu=sm_70'; expected sm_80 or sm_90",
        ),
        (["--gpu=sm_80,volta", "x.metal"], "invalid value 'volta'"),
    ],
)
def test_wrong_targets(arguments: list[str], said: str, capsys) -> None:
    assert cli.main(arguments) == 1
    assert said in capsys.readouterr().err


def test_derived_vectors_are_refused() -> None:
    with pytest.raises(
        CompileError, match="'twice' is derived from others; for a GPU it has to be a scalar"
    ):
        ptx(
            "constant uint w [[function_constant(0)]]; constant uint2 twice = uint2(w, w);\n"
            "kernel void k(device uint2* a) { a[0] = twice; }"
        )


def test_report(capsys) -> None:
    file = path("report.metal")
    file.write_text(
        HEADER + "kernel void k(device float* a) { threadgroup float t[8]; t[0] = 1; a[0] = t[0]; }"
    )
    assert cli.main(["--report", "--gpu=sm_80", str(file)]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "kernel",
        "target",
        "registers",
        "stack",
        "spills",
        "threadgroup",
        "memory",
    ]
    name, target, registers, stack, spills, _ = row.split()
    assert (name, target, stack, spills) == ("k", "sm_80", "0", "0") and int(registers) > 0


# ---- the functions that a GPU has no library for. Rounding once leaves 1/2 unit; those in float lose a little more.
ONE = {
    "exp": (np.exp, -105, 90, 1.1), "exp2": (np.exp2, -151, 129, 1.1), "exp10": (lambda x: 10.0**x, -46, 39, 0.51),
    "log": (np.log, 0, 3, 1.0), "log2": (np.log2, 0, 3, 0.51), "log10": (np.log10, 0, 3, 0.51),
    "sin": (np.sin, -1e4, 1e4, 1.6), "cos": (np.cos, -1e4, 1e4, 1.6),
    "straight_sin": (np.sin, -1e4, 1e4, 1.6), "straight_cos": (np.cos, -1e4, 1e4, 1.6), "tan": (np.tan, -100, 100, 0.51),
    "sinh": (np.sinh, -4, 4, 0.51), "cosh": (np.cosh, -4, 4, 0.51), "tanh": (np.tanh, -4, 4, 0.51),
    "asinh": (np.arcsinh, -4, 4, 0.51), "acosh": (np.arccosh, 0.9, 4, 0.51), "atanh": (np.arctanh, -1.1, 1.1, 0.51),
    "asin": (np.arcsin, -1.1, 1.1, 0.51), "acos": (np.arccos, -1.1, 1.1, 0.51), "atan": (np.arctan, -4, 4, 0.51),
}  # fmt: skip
TWO = {
    "pow": (np.power, 0.51),
    "atan2": (np.arctan2, 0.51),
    "fmod": (np.fmod, 0.0),
    "nextafter": (None, 0.0),
}
SPECIAL = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-40, -1e-40, 3, -2.5, 2**24, 3.4e38], np.float32
)


@pytest.fixture(scope="module")
def functions(tmp_path_factory) -> ctypes.CDLL:
    source = "".join(
        [
            '#include "hostmetal/msl/lib/gpu_math.h"\n',
            *(f'extern "C" void f_{n}(const float* a, float* o, long c) {{ for (long i = 0; i < c; ++i) '
              f"o[i] = _msl::gpu::{n}(a[i]); }}\n" for n in ONE),
            *(f'extern "C" void f_{n}(const float* a, const float* b, float* o, long c) {{ for (long i = 0; i < c; ++i) '
              f"o[i] = _msl::gpu::{n}(a[i], b[i]); }}\n" for n in TWO),
            'extern "C" void f_parts(const float* a, float* m, int* e, int* l, float* s, long c) { for (long i = 0; i < c; '
            "++i) { m[i] = _msl::gpu::frexp(a[i], e + i); l[i] = _msl::gpu::ilogb(a[i]); "
            "s[i] = _msl::gpu::ldexp(a[i], int(i % 601) - 300); } }\n",
        ]
    )  # fmt: skip
    out = tmp_path_factory.mktemp("math") / "math.so"
    # Literals are as in shaders: floats, if clang sees a minus before them.
    literals = ["-Xclang", "-cl-single-precision-constant"]
    flags = [
        "-std=c++17",
        "-O2",
        "-mfma",
        "-ffp-contract=off",
        "-fPIC",
        "-shared",
        "-I",
        str(ROOT),
        *literals,
    ]
    subprocess.run(
        [toolchain.clang(), *flags, "-x", "c++", "-", "-o", str(out)],
        input=source,
        text=True,
        check=True,
    )
    return ctypes.CDLL(str(out))


def arguments(low: float, high: float, count: int = 200_000) -> np.ndarray:
    rng = np.random.default_rng(3)
    usual = rng.uniform(low, high, count).astype(np.float32)
    every = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([SPECIAL, usual, every])


def pointers(*arrays: np.ndarray) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(a.ctypes.data) for a in arrays]


def check(got: np.ndarray, expected: np.ndarray, limit: float) -> None:
    """Within `limit` units in the last place of float64's result."""
    rounded = expected.astype(np.float32)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    finite = np.isfinite(got) & np.isfinite(rounded)
    assert (same | finite).all()
    unit = np.spacing(np.maximum(np.abs(np.where(finite, rounded, 1)), np.float32(2**-126))).astype(
        np.float64
    )
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0, np.abs(got.astype(np.float64) - expected) / unit)
    assert error.max() <= limit


@pytest.mark.parametrize("name", ONE)
def test_math(functions, name: str) -> None:
    oracle, low, high, limit = ONE[name]
    a = arguments(low, high)
    got = np.empty_like(a)
    getattr(functions, f"f_{name}")(*pointers(a, got), ctypes.c_long(a.size))
    with np.errstate(all="ignore"):
        check(got, oracle(a.astype(np.float64)), limit)


@pytest.mark.parametrize("name", TWO)
def test_math_of_two(functions, name: str) -> None:
    oracle, limit = TWO[name]
    a = arguments(-20, 20)
    b = np.random.default_rng(4).permutation(a)
    a, b = (
        np.concatenate([v, w])
        for v, w in zip((a, b), map(np.ravel, np.meshgrid(SPECIAL, SPECIAL)), strict=True)
    )
    got = np.empty_like(a)
    getattr(functions, f"f_{name}")(*pointers(a, b, got), ctypes.c_long(a.size))
    with np.errstate(all="ignore"):
        wide = (
            np.nextafter(a, b)
            if oracle is None
            else oracle(a.astype(np.float64), b.astype(np.float64))
        )
        check(got, wide.astype(np.float64), limit)


def test_parts_of_floats(functions) -> None:
    a = arguments(-4, 4)
    a = a[np.isfinite(a)]
    mantissa, scaled = np.empty_like(a), np.empty_like(a)
    exponent, logarithm = (np.empty(a.size, np.int32) for _ in range(2))
    functions.f_parts(*pointers(a, mantissa, exponent, logarithm, scaled), ctypes.c_long(a.size))
    expected, by = np.frexp(a)
    np.testing.assert_array_equal(mantissa, expected)
    np.testing.assert_array_equal(exponent, by)
    np.testing.assert_array_equal(logarithm[a != 0], by[a != 0] - 1)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(
            scaled, np.ldexp(a.astype(np.float64), np.arange(a.size) % 601 - 300).astype(np.float32)
        )
