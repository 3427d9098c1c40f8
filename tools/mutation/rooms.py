"""The files to break, how many places of each, the files that are built anew for it, and the tests of it, nearest
first."""

from __future__ import annotations

import re
from pathlib import Path

# room: (its sources, how many of 200 places)
ROOMS: dict[str, tuple[list[str], int]] = {
    "kernels": (["kernels/**/*.cc", "kernels/**/*.h", "ops/*.cc"], 50),
    "Metal kernels": (["kernels/**/*.mm"], 15),
    "shaders": (["kernels/**/*.metal", "device/**/*.metal", "device/**/*.metal.h"], 30),
    "graph pass": (["graph/**/*.cc", "graph/**/*.h"], 20),
    "device": (["device/**/*.mm", "device/*.h"], 20),
    "hostmetal": (["hostmetal/src/**/*.mm", "hostmetal/src/**/*.cc", "hostmetal/src/**/*.h"], 20),
    "shader library": (["hostmetal/msl/lib/*.h"], 10),
    "Python": (["python/metal_ops/**/*.py"], 35),
}

# Built and tested in PyTorch's environment, by `make test-torch`: no mistakes are planted there.
ELSEWHERE = ("kernels/torch/", "python/metal_ops/torch/")

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "python/metal_ops"
# The library that an object file is linked into, by its folder.
LIBRARIES = {
    "build/metal_so/": f"{PACKAGE}/_metal_kernels.so",
    "build/device_so/": f"{PACKAGE}/libmetal_device.so",
    "build/hostmetal/": f"{PACKAGE}/libhostmetal.so",
    "build/": f"{PACKAGE}/_metal_ops.so",
}
OWN = "tests/metal_kernels/on_device/test_{}.py"  # in a process with the device
DEVICE = "tests/device/on_device/test_{}.py"


# Tests of several op families at once, besides those that a family's name finds.
SHARED = {
    OWN.format("rays"): ("volume_render", "ray_march", "packed_scan", "distortion_loss"),
    "tests/nerf/test_composite.py": (
        "volume_render",
        "ray_march",
        "packed_scan",
        "distortion_loss",
    ),
    "tests/test_occupancy.py": ("ray_march",),
    "tests/msl/test_wide_access.py": ("hash_encode",),
    OWN.format("losses"): ("robust_loss", "focal_loss", "scale_slope"),
    "tests/test_losses.py": ("robust_loss", "focal_loss", "scale_slope"),
    OWN.format("encodings"): ("sh_encode", "frequency_encode"),
    OWN.format("fusion"): ("fused_matmul", "fused_conv2d"),
    "tests/test_metal_library.py": ("metal_kernel",),
    OWN.format("metal_library"): ("metal_kernel",),
    "tests/test_adam.py": ("fused_optimizer",),
    "tests/test_optimizers.py": ("fused_optimizer",),
}


def _families() -> dict[str, list[str]]:
    """Each folder of kernels/ that holds an op family, with its tests: on the CPU first."""
    parts = ("_op.cc", "_cpu.cc", "_metal.mm", ".metal")
    found = {}
    for folder in sorted((ROOT / "kernels").iterdir()):
        name = folder.name
        if any((folder / f"{name}{part}").exists() for part in parts):
            places = (ROOT / "tests", ROOT / "tests" / "metal_kernels" / "on_device")
            own = [file for place in places for file in sorted(place.glob(f"test_{name}*.py"))]
            shared = [test for test, families in SHARED.items() if name in families]
            found[name] = [str(file.relative_to(ROOT)) for file in own] + shared
    return found


FAMILIES = _families()
# Sweeps over all ops, after an op's own tests.
SWEEPS = ["tests/test_op_families.py", "tests/test_arguments.py", OWN.format("bad_calls"), OWN.format("all_ops"),
          OWN.format("determinism")]  # fmt: skip
FUSION = ["tests/fusion/test_patterns.py", "tests/fusion/test_conditions.py", "tests/fusion/test_shape_readers.py",
          "tests/fusion/test_explain.py", "tests/fusion/test_random_graphs.py", "tests/fusion/test_where_it_runs.py",
          "tests/fusion/test_grappler.py", OWN.format("fusion")]  # fmt: skip
ON_DEVICE = [DEVICE.format("ops"), DEVICE.format("nn"), DEVICE.format("state"), DEVICE.format("stress"),
             "tests/device/test_loading.py", "tests/device/test_faults.py"]  # fmt: skip
MSL = [f"tests/msl/test_{name}.py" for name in ("kernels", "types", "math", "integers", "threadgroup", "simdgroup",
                                               "validation", "checks", "checked_kernels", "errors",
                                               "textures", "command_line")]  # fmt: skip
NERF = [f"tests/nerf/test_{name}.py" for name in ("cameras", "space", "composite", "files", "model", "scenes",
                                                 "procedural", "training", "program", "on_device")]  # fmt: skip


def _all(folder: str, *more: str) -> list[str]:
    """Every test file of a folder, and more."""
    found = sorted((ROOT / folder).glob("test_*.py"))
    return [*(str(file.relative_to(ROOT)) for file in found), *more]


# Files and folders whose tests are not found by an op's name; the first that fits.
BY_PATH: list[tuple[str, list[str]]] = [
    (r"kernels/gemm/gemm\.mm", [OWN.format("fused_matmul"), OWN.format("fused_conv2d"), DEVICE.format("nn")]),
    (r"kernels/runtime/clear", ["tests/msl/test_kernels.py", OWN.format("rays"), OWN.format("hash_encode")]),
    (
        r"kernels/(runtime|losses)/\w+\.(mm|metal)$|kernels/tensorflow/(op_kernel|registrar|variable)\.",
        [
            *(OWN.format(name) for name in ("zero_out", "losses", "metal_kernel", "bad_calls", "hash_encode")),
            OWN.format("fused_optimizer"),
            *("tests/device/test_loading.py", "tests/device/test_faults.py", "tests/metal_kernels/test_build.py"),
        ],
    ),
    (r"kernels/gemm/gemm\.metal\.h", ["tests/msl/test_gemm.py", DEVICE.format("nn"), OWN.format("fused_matmul"),
                                       OWN.format("fused_conv2d")]),
    (r"kernels/gemm/\w+\.metal\.h", [DEVICE.format("nn"), OWN.format("fused_matmul"), OWN.format("fused_conv2d")]),
    (
        r"kernels/tensorflow/adapter_metal",
        [OWN.format(name) for name in ("fused_optimizer", "hash_encode", "losses", "bad_calls", "metal_kernel")],
    ),
    (
        r"kernels/tensorflow/",
        [
            *("tests/test_fused_optimizer.py", "tests/test_hash_encode.py", "tests/test_ray_march.py"),
            *("tests/test_metal_kernel.py", *SWEEPS),
        ],
    ),
    (r"kernels/msl/wide_access", ["tests/msl/test_wide_access.py", OWN.format("hash_encode")]),
    (r"graph/", FUSION),
    (r"device/fork", ["tests/device/test_forks.py", *ON_DEVICE]),
    (r"device/plugin", ["tests/device/test_loading.py", *ON_DEVICE]),
    (r"device/graph_optimizers", ["tests/device/test_loading.py", OWN.format("fusion")]),
    (r"device/(executor|stream|callback|copies|memory)", ["tests/device/test_executor.py", *ON_DEVICE]),
    (r"device/kernels/nn/", [DEVICE.format("nn"), DEVICE.format("ops"), OWN.format("fusion")]),
    (r"device/kernels/(variable|optimizer|variant)", [DEVICE.format("state"), DEVICE.format("ops")]),
    (r"device/", [*ON_DEVICE, "tests/device/test_executor.py"]),
    (r"hostmetal/src/cuda/", ["tests/hostmetal/test_cuda.py", "tests/msl/test_gpu.py"]),
    (r"hostmetal/src/texture", ["tests/hostmetal/test_hostmetal.py", "tests/msl/test_textures.py"]),
    (r"hostmetal/src/inline_buffer", ["tests/hostmetal/test_hostmetal.py", "tests/hostmetal/test_cuda.py"]),
    (r"hostmetal/src/", ["tests/hostmetal/test_hostmetal.py", *MSL[:8], DEVICE.format("ops")]),
    (r"hostmetal/msl/lib/gpu_", ["tests/msl/test_gpu.py", *MSL]),
    (r"hostmetal/msl/lib/texture", ["tests/msl/test_textures.py", *MSL]),
    (r"hostmetal/msl/lib/(simdgroup)", ["tests/msl/test_simdgroup.py", *MSL]),
    (r"hostmetal/msl/lib/(math|bfloat)", ["tests/msl/test_math.py", *MSL]),
    (r"hostmetal/msl/lib/(matrix|vec|types|swizzle)", ["tests/msl/test_types.py", *MSL]),
    (r"hostmetal/msl/", MSL),
    (r"python/metal_ops/metal/(gpu|cpu|ir|launch)", ["tests/msl/test_gpu.py", *MSL]),
    (r"python/metal_ops/metal/abi", ["tests/msl/test_abi.py", *MSL]),
    (r"python/metal_ops/metal/cli", ["tests/msl/test_command_line.py", "tests/msl/test_errors.py", *MSL]),
    (r"python/metal_ops/metal/cache", ["tests/msl/test_cache.py", *MSL]),
    (r"python/metal_ops/metal/", ["tests/msl/test_errors.py", *MSL]),
    (r"python/metal_ops/programs/", ["tests/test_programs.py", "tests/image/test_program.py", *NERF]),
    (r"python/metal_ops/nerf/hull", ["tests/nerf/test_cameras.py", "tests/nerf/test_files.py",
                                                "tests/nerf/test_hostile.py", *NERF]),
    (r"python/metal_ops/nerf/scenes/(procedural|shapes)", ["tests/nerf/test_procedural.py", *NERF]),
    (r"python/metal_ops/nerf/scenes/", ["tests/nerf/test_scenes.py", "tests/nerf/test_hostile.py", *NERF]),
    (r"python/metal_ops/nerf/(train|evaluate|model)", ["tests/nerf/test_training.py", *NERF]),
    (r"python/metal_ops/nerf/(cli|options|run|compare|pictures)", ["tests/nerf/test_program.py", *NERF]),
    (r"python/metal_ops/nerf/", NERF),
    (r"python/metal_ops/(lm/|kv_cache|adapters)", _all("tests/lm", "tests/test_adapters.py")),
    (r"python/metal_ops/sdf/", _all("tests/sdf")),
    (r"python/metal_ops/image/", _all("tests/image")),
    (r"python/metal_ops/package/", ["tests/test_model_package.py", OWN.format("model_package")]),
    (r"python/metal_ops/_?quantiz", ["tests/test_quantization.py", "tests/test_layer_names.py",
                                     "tests/test_quantized_layers.py", OWN.format("quantization")]),
    (r"python/metal_ops/profiler", [DEVICE.format("profiler")]),
    (r"python/metal_ops/kernel/", [*FAMILIES["metal_kernel"][1:3], FAMILIES["metal_kernel"][0]]),
    (r"python/metal_ops/fusion/", ["tests/fusion/test_explain.py", "tests/fusion/test_html.py", *FUSION]),
    (r"python/metal_ops/ops/_fused", ["tests/test_fused_matmul.py", *FAMILIES["fused_conv2d"]]),
    (r"python/metal_ops/(ops/_losses|losses)", [*FAMILIES["robust_loss"], "tests/test_focal_loss.py"]),
    (r"python/metal_ops/ops/_", ["tests/test_arguments.py", *FAMILIES["volume_render"], *FAMILIES["packed_scan"],
                                 *FAMILIES["ray_march"],
                                 "tests/test_focal_loss.py", "tests/test_hash_encode_invalid.py"]),
    (r"python/metal_ops/optimizers/", ["tests/test_adam.py", "tests/test_optimizers.py", "tests/test_determinism.py",
                                       OWN.format("fused_optimizer")]),
    (r"python/metal_ops/(layers/|_keras)", ["tests/test_layer.py", "tests/test_tcnn.py", "tests/test_hash_encode.py",
                                            "tests/test_determinism.py"]),
    (r"python/metal_ops/_tcnn", ["tests/test_tcnn.py", "tests/test_layer.py"]),
    (r"python/metal_ops/grid", ["tests/test_grid.py", "tests/test_layer.py", "tests/test_hash_encode.py"]),
    (r"python/metal_ops/occupancy", ["tests/test_occupancy.py", "tests/test_ray_march.py", *NERF[-3:-1]]),
    (r"python/metal_ops/device", ["tests/device/test_loading.py", *ON_DEVICE]),
    (r"python/metal_ops/build/", ["tests/metal_kernels/test_build.py", "tests/test_portability.py"]),
    (r"(kernels|python/metal_ops)/torch/", ["tests/adapter/test_torch_declarations.py"]),
    (r"python/metal_ops/_library", ["tests/test_import.py", "tests/test_simd.py", "tests/test_package.py"]),
    (r"python/metal_ops/", ["tests/test_import.py", "tests/test_package.py", "tests/test_arguments.py",
                            "tests/nerf/test_program.py", "tests/device/test_loading.py"]),
]  # fmt: skip


# Sources in which no mistakes are planted, for `make test-near`; the first that fits.
AROUND: list[tuple[str, list[str]]] = [
    (r"docs/write-a-metal-op", ["tests/metal_kernels/test_guide.py", "tests/test_docs.py"]),
    (r"docs/build", ["tests/packaging/test_build_page.py", "tests/test_docs.py"]),
    (r"docs/mutation", ["tests/test_mutation.py"]),
    (r"docs/public\.txt|tools/reference/public", ["tests/test_public.py"]),
    (r"docs/.*\.jsonl|tools/reference/", ["tests/test_reference.py", "tests/test_docs.py"]),
    (r"CHANGELOG|docs/releases", ["tests/test_changelog.py", "tests/test_docs.py"]),
    (r"SECURITY", ["tests/test_security.py", "tests/test_docs.py"]),
    (r"docs/|mkdocs\.yml|README|CONTRIBUTING", ["tests/test_docs.py"]),
    (r"findings/", ["tests/test_house.py"]),
    (r"examples/", ["tests/test_examples.py"]),
    (r"tools/gpu/|benchmarks/gpu/", ["tests/msl/test_gpu_pack.py"]),
    (r"benchmarks/", ["tests/test_benchmarks.py"]),
    (r"tools/(faults|checks)/", ["tests/msl/test_faults.py", "tests/msl/test_checks.py"]),
    (r"tools/mutat", ["tests/test_mutation.py"]),
    (r"tools/choose_tests|pyproject\.toml|\.ci/|tools/sanitize/run", ["tests/test_suites.py", "tests/test_setup.py"]),
    (r"tools/new_op|kernels/null_op/", ["tests/metal_kernels/test_new_op.py", "tests/test_house.py"]),
    (r"\.github/|tools/ci/", ["tests/test_workflows.py"]),
    (r"tools/packaging/|(hostmetal/)?(setup\.py|MANIFEST|pyproject)", _all("tests/packaging", "tests/test_package.py")),
    (r"(.*/)?(Makefile|\w+\.mk|exports\.map)$|requirements|tools/", ["tests/test_setup.py", "tests/test_house.py"]),
    (r"hostmetal/", ["tests/hostmetal/test_hostmetal.py", *_all("tests/hosts")]),
    (r"python/metal_ops/include/", ["tests/metal_kernels/test_build.py", "tests/test_portability.py"]),
    (r"(.*/)?(BUILD|WORKSPACE|LICENSE|NOTICE|\.\w[^/]*)$", ["tests/test_house.py"]),
]  # fmt: skip


def place(path: str) -> str | None:
    """The rule that names the tests of a change of this file; None where there is none."""
    if path.startswith("tests/"):
        return "tests/"
    if _family(path):
        return f"kernels/{_family(path)}"
    if found := next((pattern for pattern, _ in BY_PATH if re.match(pattern, path)), None):
        return found
    if re.match(r"kernels/|ops/", path) and path.endswith((".cc", ".h", ".mm", ".metal")):
        return "what ops share"
    return next((pattern for pattern, _ in AROUND if re.match(pattern, path)), None)


def near(path: str, objects: set[str]) -> list[str]:
    """The test files that a change of a file can break, by the rule of its place, nearest first."""
    where = place(path)
    if where == "tests/":
        return [path] if Path(path).name.startswith("test_") else _importers(path)
    around = dict(AROUND)
    return around[where] if where in around else tests_of(path, objects)


def _importers(path: str) -> list[str]:
    """The test files that import a module of tests/, or name a file there; a conftest is of its folder's."""
    if Path(path).name in ("conftest.py", "__init__.py"):
        found = sorted((ROOT / path).parent.glob("test_*.py"))
    else:
        word = re.compile(rf"\b{re.escape(Path(path).stem)}\b")
        every = sorted((ROOT / "tests").rglob("test_*.py"))
        found = [file for file in every if word.search(file.read_text())]
    return [str(file.relative_to(ROOT)) for file in found]


def dependents(root: Path) -> dict[str, set[str]]:
    """source or header -> the object files that make would build anew, from the compiler's own lists."""
    found: dict[str, set[str]] = {}
    for listing in (root / "build").rglob("*.d"):
        target, _, rest = listing.read_text().partition(":")
        for name in rest.partition("\n\n")[0].replace("\\\n", " ").split():
            found.setdefault(name.rstrip(":").removeprefix("./"), set()).add(target.strip())
    return found


def _family(path: str) -> str | None:
    found = re.search(r"kernels/(\w+)/|ops/(\w+)_op\.|metal_ops/ops/(\w+)\.py", path)
    name = next((group for group in found.groups() if group), None) if found else None
    return name if name in FAMILIES else None


def tests_of(path: str, objects: set[str]) -> list[str]:
    """The test files to run, nearest first: that of the file's own name, then the room's."""
    every = _tests_of(path, objects)
    # Code that only one of the two devices runs is tested there alone.
    on_device = [test for test in every if "device" in test or "/msl/" in test]
    host = [name for name in objects if "_so/" not in name and not name.endswith(".air")]
    if path.startswith("kernels/") and not host:
        every = on_device
    elif path.endswith(("_cpu.cc", "_simd.cc", "-inl.h", "_simd.h")):
        every = [test for test in every if test not in on_device]
    named = [test for test in every if Path(test).stem == f"test_{Path(path).stem}"]
    return list(dict.fromkeys([*named, *every]))


def _tests_of(path: str, objects: set[str]) -> list[str]:
    own = _family(path)
    if own:
        # Code that only the device runs is tested there alone.
        return (
            sorted(
                FAMILIES[own],
                key=lambda test: "/on_device/" not in test and path.endswith(("l", "mm")),
            )
            + SWEEPS
        )
    for pattern, tests in BY_PATH:
        if re.match(pattern, path):
            return tests
    # Code that ops share is tested by them: three of those that are built from it.
    families = sorted({name for name in map(_family, objects) if name})
    # The graph pass and the device build from kernels/ too.
    more = FUSION[:2] if any("build/graph" in name for name in objects) else []
    more += ON_DEVICE[:3] if any("device_so/device" in name for name in objects) else []
    chosen = [test for name in families[:6] for test in FAMILIES[name]]
    return [*chosen, *more, *SWEEPS]


def targets_of(path: str, objects: set[str]) -> list[str]:
    """The targets that make has to build before the tests of a mutant of `path` run."""
    found = set()
    for name in objects:
        if name.endswith(".air"):
            found.add(f"{PACKAGE}/metal_ops.metallib")
        elif not name.startswith(("build/tests/", "build/sanitize/")):
            found.add(
                next(library for folder, library in LIBRARIES.items() if name.startswith(folder))
            )
            if name.endswith("_checks.o") and name.startswith("build/kernels/"):
                found.add(f"{PACKAGE}/_metal_kernels.so")
    if (
        path.startswith("kernels/msl/")
        or path.endswith(".metal.h")
        or (path.startswith("device/") and ".metal" in path)
    ):
        found.add(f"{PACKAGE}/libmetal_device.metallib")
    if path.startswith("device/"):
        found.add("build/device_so/executor_test")
    if path.startswith("hostmetal/src/"):
        found.add("build/tests/hostmetal/hostmetal_tests")
    return sorted(found)
