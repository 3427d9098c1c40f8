"""The sources of the kernels build on macOS too, which no test machine is: the conditions for that beyond building
here."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from metal_ops.build import flags
from metal_ops.metal.launch import Library
from tests.processes import ROOT, Process

pytestmark = pytest.mark.packaging

SUFFIXES = (".cc", ".h", ".mm", ".metal")
SOURCES = sorted(
    path.relative_to(ROOT)
    for room in ("ops", "kernels", "graph", "device")
    for path in (ROOT / room).rglob("*")
    if path.suffix in SUFFIXES
)
HOST = [
    path
    for path in SOURCES
    if ".metal" not in path.suffixes and path.parts[:2] != ("kernels", "msl")
]

# The headers in which the standard declares a name; libstdc++ and libc++ differ in the others that do.
DECLARED = {
    "algorithm": "all_of any_of clamp copy copy_n equal fill fill_n find find_if max max_element min min_element "
    "none_of reverse rotate sort stable_sort transform unique upper_bound lower_bound",
    "array": "array",
    "atomic": "atomic",
    "cmath": "ceil copysign cos erf exp exp2 expm1 fabs floor fma frexp isfinite isinf isnan ldexp log log1p log2 "
    "lround nearbyint pow rint round sin sqrt tanh trunc",
    "condition_variable": "condition_variable",
    "cstdio": "fprintf printf snprintf",
    "cstdlib": "abort atoll free getenv malloc strtod strtol",
    "cstring": "memcmp memcpy memmove memset strcmp strlen",
    "deque": "deque",
    "functional": "function",
    "initializer_list": "initializer_list",
    "limits": "numeric_limits",
    "map": "map multimap",
    "memory": "make_shared make_unique shared_ptr unique_ptr",
    "mutex": "call_once lock_guard mutex once_flag unique_lock",
    "new": "bad_alloc nothrow",
    "numeric": "accumulate iota",
    "optional": "nullopt optional",
    "set": "set",
    "sstream": "istringstream ostringstream stringstream",
    "string": "stoi stol string to_string",
    "string_view": "string_view",
    "thread": "thread",
    "tuple": "make_tuple tie tuple",
    "type_traits": "conditional_t decay_t enable_if_t is_same is_same_v is_trivially_copyable",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "declval exchange forward index_sequence index_sequence_for make_index_sequence make_pair move pair",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in DECLARED.items() for name in names.split()}

# Functions that macOS lacks, syntax that only the compilers here take, and names that only
# hostmetal has.
FOREIGN = {
    r"/proc/|\bdlinfo\b|\bdl_iterate_phdr\b|\.init_array|<link\.h>|<malloc\.h>|<features\.h>": "Linux",
    r"\b(x86|imm)intrin\.h|\b_mm(256|512)?_\w+\(|\basm\b": "x86; Highway has it for all processors",
    r"<bits/|<ext/|\b__gnu_\w+|\b__GLIBC": "libstdc++ or glibc",
    r"GNUSTEP|\bobjc_\w+\(|<objc/|<Block\.h>|\bNSAutoreleasePool\b|hostmetal[./]": "hostmetal or GNUstep",
    r"%l[dux]\b|\b(?:un)?signed long\b(?! long)": "int64_t is long long on macOS; stream it, or say int64_t",
}
PLATFORM = r"^\s*#\s*(?:el)?if.*\b(__APPLE__|__linux__|TARGET_OS_\w+|_WIN32)\b"
# Packed with the wheel, for other people's ops.
SHARED = sorted(path.name for path in (flags.INCLUDE / "kernels").iterdir())
PLATFORM_FILE = Path("kernels/runtime/platform.mm")
# Where an instruction is written out that Highway 1.0 does not have, for the target that has it.
PROCESSOR_FILE = Path("kernels/quantized_matmul/byte_products-inl.h")


def uncommented(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


@functools.cache
def included(path: Path) -> frozenset[str]:
    """The headers that a file includes, also through the project's own ones."""
    headers: set[str] = set()
    for name in re.findall(r'^\s*#\s*(?:include|import)\s*[<"]([^>"]+)', path.read_text(), re.M):
        if name not in headers:
            headers.add(name)
            if (ROOT / name).exists() and (ROOT / name) != path:
                headers |= included(ROOT / name)
    return frozenset(headers)


def undeclared(path: Path) -> dict[str, str]:
    """Names of std:: for which the file includes no header, and the header."""
    code = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', uncommented(path.read_text()))
    used = set(re.findall(r"\bstd::(\w+)", code))
    return {
        f"std::{name}": f"<{HEADER_OF[name]}>"
        for name in used & HEADER_OF.keys()
        if HEADER_OF[name] not in included(path)
    }


def foreign(path: Path, text: str) -> list[str]:
    """Names in the file that macOS does not have."""
    text = uncommented(text)
    found = [
        f"{path}: {match.group().strip()!r} ({why})"
        for pattern, why in FOREIGN.items()
        for match in re.finditer(pattern, text)
        if not (path == PROCESSOR_FILE and why.startswith("x86"))
    ]
    found += [
        f"{path}: {match.group().strip()!r} (belongs in {PLATFORM_FILE})"
        for match in re.finditer(PLATFORM, text, re.M)
    ]
    return [] if path == PLATFORM_FILE else found


def test_standard_headers_are_included_by_name():
    missing = {str(path): names for path in HOST if (names := undeclared(ROOT / path))}
    assert missing == {}


def test_nothing_is_of_one_platform():
    assert [line for path in SOURCES for line in foreign(path, (ROOT / path).read_text())] == []


def test_shared_rooms_include_no_op():
    """They are packed for other people's ops, without the folders of ours: headers and their includes."""
    for path in SOURCES:
        brought = path.suffix not in (".cc", ".mm") or (ROOT / path).with_suffix(".h").exists()
        if path.parts[1] in SHARED and brought:
            own = [Path(name) for name in included(ROOT / path) if (ROOT / name).exists()]
            assert [name for name in own if name.parts[1] not in SHARED] == [], path


@pytest.mark.parametrize(
    "text, found",
    [
        ('std::ifstream file("/proc/self");', 1),
        ("int x;  // /proc/ and %ld", 0),
        ('printf("%ld", n);', 1),
        ("#include <immintrin.h>", 1),
        ("__m256 x = _mm256_setzero_ps();", 1),
        ("#import <objc/runtime.h>", 1),
        ('#include "hostmetal.h"', 1),
        ("static_cast<unsigned long>(x)", 1),
        ("unsigned long long x;", 0),
        ("#if defined(__APPLE__)", 1),
        ("#elif __linux__", 1),
        ("void dlinfo(void*, int, void*);", 1),
    ],
)
def test_control_what_is_foreign_is_seen(text: str, found: int):
    assert len(foreign(Path("kernels/x/x.cc"), text)) == found


def test_control_a_missing_header_is_seen(tmp_path: Path):
    source = tmp_path / "x.cc"
    source.write_text(
        '#include <string>\nstd::string a; std::vector<int> b;  // std::map\nauto c = "std::set";\n'
    )
    assert undeclared(source) == {"std::vector": "<vector>"}


def test_options_for_apples_shader_compiler_are_known_here(tmp_path: Path):
    """The one list of options; also that of the two compilers the same lines are asked of."""
    options = flags.shader_flags()
    assert {"-fno-fast-math", "-ffp-contract=off"} <= set(options)
    for user in ("kernels/metal.mk", "tools/bazel/metal.bzl", "python/metal_ops/build/builder.py"):
        text = (ROOT / user).read_text()
        assert "shader_flags" in text.lower() and "-fno-fast" not in text, user
    shader = tmp_path / "x.metal"
    shader.write_text(
        "kernel void k(device float* x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }"
    )
    command = [sys.executable, "-m", "metal_ops", "metal", *options, "-c", shader]
    done = subprocess.run(
        [*map(str, command), "-o", str(tmp_path / "x.air")], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def with_long_long(source: Path, folder: Path = ROOT) -> str:
    """Compiles a Metal kernel with macOS's int64_t; the errors."""
    types = ["-isystem", str(ROOT / "tests/apple")]
    options = [*flags.objcxx_flags(), *flags.tensorflow_flags()[0], f"-I{ROOT}", "-fsyntax-only"]
    command = [*flags.compiler(), *types, *options, str(source)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr


@pytest.mark.full("every Metal kernel is compiled once more")
def test_kernels_take_int64_for_what_it_is():
    """CPU kernels are left out for their time: each of them reads all of TensorFlow's headers."""
    kernels = [path for path in SOURCES if path.suffix == ".mm"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = dict(zip(kernels, pool.map(with_long_long, kernels), strict=True))
    assert {str(path): error for path, error in errors.items() if error} == {}


def test_control_a_mix_of_int64_and_long_is_seen(tmp_path: Path):
    source = tmp_path / "x.mm"
    source.write_text(
        "#include <algorithm>\n#include <cstdint>\nlong f(int64_t a, long b) { return std::max(a, b); }\n"
    )
    assert "no matching function for call to 'max'" in with_long_long(source)


# Names of the kernels in shaders, as Metal 3.0 has them: those that the compiler's front end reads, a line each.
NAMES = """
import sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from metal import compiler
for file in sys.argv[2:]:
    with tempfile.TemporaryDirectory() as folder:
        unit = compiler.unit(file, compiler.Options(include=(".",), std=(3, 0)), None)
        _, found, said = unit.read(unit.flags(Path(folder)))
    print(*(kernel.host_name for kernel in found.kernels), said, sep="\\n")
"""


def names_in_metal_3_0(shaders: list[str]) -> set[str]:
    package = str(flags.PACKAGE)
    workers = min(os.cpu_count() or 1, len(shaders))
    running = [Process("-c", NAMES, package, *shaders[first::workers]) for first in range(workers)]
    done = [process.finish(timeout=600) for process in running]
    errors = "".join(said for code, _, said in done if code != 0)
    assert not errors, errors
    return {name for _, names, _ in done for name in names.split("\n") if name}


@pytest.mark.full("every shader is read once more")
@pytest.mark.parametrize(
    "room, library", [("kernels", "metal_ops.metallib"), ("device", "libmetal_device.metallib")]
)
def test_without_bfloat_shaders_are_the_same(room: str, library: str):
    """Metal 3.0 has none, and is the newest that macOS 13 loads."""
    shaders = [str(path) for path in SOURCES if path.suffix == ".metal" and path.parts[0] == room]
    built = Library(flags.PACKAGE / library).kernels
    assert any("bfloat" in name for name in built)
    without = {name for name in built if "bfloat" not in name}
    assert names_in_metal_3_0(shaders) == without


def test_control_a_bfloat_is_seen(tmp_path: Path):
    shader = tmp_path / "x.metal"
    shader.write_text("kernel void k(device bfloat* x) { x[0] = 1; }")
    with pytest.raises(AssertionError, match="'bfloat' needs Metal 3.1"):
        names_in_metal_3_0([str(shader)])


# Words that OpenCL C++ does not have, in words that it has; address spaces stay as they are.
AS_OPENCL = (
    # An explicit instantiation cannot have attributes there.
    (r"template \[\[host_name\(name\)\]\] \[\[kernel\]\]", "template"),
    (r"(constant \w+ \w+) \[\[function_constant\(\d+\)\]\];", r"\1 = 1;"),
    # Templates are no kernels, and only kernels have variables in threadgroup memory.
    (r"(\n +threadgroup \w+)( \w+)\[\w+\](\[\w+\]);", r"\1 (*\2)\3 = nullptr;"),
    (r"(\n +threadgroup \w+)( \w+)\[[^;]*\];", r"\1*\2 = nullptr;"),
    (r"(\n +threadgroup )(\w+)( \w+);", r"\1\2&\3 = *(threadgroup \2*)16;"),
)


@pytest.fixture(scope="module")
def opencl(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, tuple[str, str]], str]:
    """Compiles a shader with address spaces that are part of the type, after an edit; the errors."""
    folder = tmp_path_factory.mktemp("opencl")

    def compile_(shader: Path, edit: tuple[str, str] = ("", "")) -> str:
        for path in SOURCES:
            if path.suffix in (".h", ".metal"):
                text = (ROOT / path).read_text().replace(*edit)
                for pattern, words in AS_OPENCL:
                    text = re.sub(pattern, words, text)
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text)
        options = [
            *("-x", "clcpp", "-cl-std=clc++2021", "-cl-no-stdinc", "-target", "spir64"),
            *("-fsyntax-only", "-D__METAL_VERSION__=310", "-Wno-unknown-attributes"),
            *("-I.", f"-I{ROOT / 'tests/apple'}", "-include", "metal_stdlib"),
        ]
        command = [*flags.compiler(), *options, str(shader)]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr

    return compile_


# Those of device/ call functions of Metal's that tests/apple has no declarations of.
SHADERS = [path for path in SOURCES if path.suffix == ".metal" and path.parts[0] != "device"]


@pytest.mark.parametrize("shader", SHADERS, ids=str)
def test_address_spaces_of_shaders(shader: Path, opencl: Callable[..., str]):
    assert opencl(shader) == ""


@pytest.mark.parametrize(
    "family, right, wrong, said",
    [
        (
            "fused_matmul",
            "device const T* line = b",
            "thread device const T* line = b",
            "multiple address spaces specified for type",
        ),
        ("hash_encode", "thread float* weights", "device float* weights", "no matching function"),
        ("hash_encode", "metal::min(rest, rest", "metal::min(int(rest), rest", "is ambiguous"),
        (
            "fused_optimizer",
            "constant FusedUpdateParams& params) {",
            "device FusedUpdateParams& params) {",
            "address space",
        ),
    ],
)
def test_control_a_wrong_address_space_is_seen(
    family: str, right: str, wrong: str, said: str, opencl: Callable[..., str]
):
    shader = Path("kernels", family, f"{family}.metal")
    assert said not in opencl(shader)
    assert said in opencl(shader, (right, wrong))
