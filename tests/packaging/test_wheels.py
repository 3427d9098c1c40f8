"""Wheels of make's build: content, symbols, size, the same bytes every time; installed, they work anywhere.

`make wheel-check` adds checks that take longer (check_wheels.py).
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import libraries
import make_wheels
import pytest

import metal_ops
from metal_ops import _version
from tests.packaging.conftest import INSTALL_WHEEL, ROOT, Environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are the Linux wheels")

MIB = 2**20
RELEASE = metal_ops._library.build_info()["tensorflow"].rpartition(".")[0]
VERSION = f"{metal_ops.__version__}+tf{RELEASE}"
# Registration entry points and the small C interfaces. Everything else is hidden.
EXPORTED = {
    "metal_ops/_metal_ops.so": r"metal_ops_\w+",
    "metal_ops/_metal_kernels.so": r"metal_kernels_\w+",
    "metal_ops/libmetal_device.so": r"SE_InitPlugin|TF_Init(Kernel|Graph|Profiler)|metal_(device|kernels)_\w+",
    "metal_ops/libhostmetal.so": r"k?CF\w+|IO\w+|MPS\w+|_*(OBJC_(META)?CLASS_)?(MTL|MPS)\w+|"
    r"__objc_class_name_(MTL|MPS)\w+|_dyld_\w+|_NSGetExecutablePath|"
    r"getsect\w+|host_\w+|task_info|_?dispatch_\w+|"
    r"objc_(msgSend\w*|msg_lookup_(super_)?stret|retain\w*|release|autorelease\w*|store\w+|unsafeClaim\w+|(init|load|copy|move|destroy)Weak\w*)|"
    r"__objc_exec_class|__CFConstantStringClassReference|_Block_\w+|_NSConcrete\w+Block|__gnu_objc_personality_v0|hostmetal_\w+",
    "metal_ops/metal_ops.metallib": r"metallib_(v1(_checked|_wide|_deferred)?|gpu_v1)",
    "metal_ops/libmetal_device.metallib": r"metallib_(v1(_checked|_wide|_deferred)?|gpu_v1)",
}
STANDARD = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2"}
TENSORFLOW = {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2"}
OBJECTIVE_C = {"libgnustep-base.so.1.28", "libobjc.so.4"}


@pytest.fixture(scope="module")
def unpacked(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both wheels' content, in one folder as pip lays it out."""
    folder = tmp_path_factory.mktemp("unpacked")
    for wheel in wheels:
        zipfile.ZipFile(wheel).extractall(folder)
    return folder


def output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_names_and_sizes(wheels):
    assert [wheel.name for wheel in wheels] == [
        f"tensorflow_metal_ops-{VERSION}-py3-none-linux_x86_64.whl",
        f"tensorflow_metal_ops_hostmetal-{VERSION}-py3-none-linux_x86_64.whl",
    ]
    for wheel in wheels:
        # 400 ops in all their types, for AVX2 and in part for AVX-512, plain and checked, with loops unrolled; products
        # for GPUs, too.
        assert wheel.stat().st_size < 18 * MIB


def test_two_builds_are_the_same_bytes(wheels, tmp_path):
    for one, again in zip(wheels, make_wheels.make(tmp_path), strict=True):
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (one, again)]
        assert digests[0] == digests[1], f"{one.name} differs from build to build"


def test_content(wheels):
    package, metal = map(names, wheels)
    sources = {
        str(path.relative_to(ROOT / "python"))
        for path in (ROOT / "python/metal_ops").rglob("*")
        if path.suffix in (".py", ".pyi", ".typed")
    }
    assert sources <= package, sources - package
    binaries = {name for name in package if re.search(r"\.(so|metallib)(\.\d+)?$", name)}
    assert binaries == {"metal_ops/_metal_ops.so", "metal_ops/libhwy.so.1"}
    assert {
        "metal_ops/include/kernels/runtime/encoder.h",
        *(f"metal_ops/{name}" for name in libraries.STUBS),
        f"tensorflow_metal_ops-{VERSION}.dist-info/licenses/LICENSE",
    } <= package
    assert {
        *(name for name in EXPORTED if name != "metal_ops/_metal_ops.so"),
        "metal_ops/include/hostmetal/Metal/Metal.h",
        "metal_ops/metal/msl/lib/prelude.h",
        "metal_ops/metal/msl/include/metal_stdlib",
        f"tensorflow_metal_ops_hostmetal-{VERSION}.dist-info/licenses/LICENSE",
    } <= metal
    assert not package & metal, "no file belongs to both"
    stray = {
        name for name in package | metal if "__pycache__" in name or name.endswith((".o", ".d"))
    }
    assert not stray


def test_metadata(wheels):
    def metadata(wheel: Path) -> str:
        archive = zipfile.ZipFile(wheel)
        return archive.read(next(n for n in names(wheel) if n.endswith("/METADATA"))).decode()

    package, metal = map(metadata, wheels)
    assert f"\nVersion: {VERSION}\n" in package and f"\nVersion: {VERSION}\n" in metal
    assert re.search(r"Requires-Dist: tensorflow-metal-ops-hostmetal; .*extra == .metal.", package)
    assert f"\nRequires-Dist: tensorflow-metal-ops=={VERSION}\n" in metal
    assert (
        f"\nRequires-Dist: tensorflow-cpu=={_version.TENSORFLOW_RELEASES[RELEASE][0]};" in package
    )
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"## [{metal_ops.__version__}]" in changes


@pytest.mark.parametrize("library", EXPORTED)
def test_only_entry_points_are_exported(unpacked, library):
    lines = output("nm", "-D", "--defined-only", unpacked / library).splitlines()
    symbols = [line.split()[-1] for line in lines]
    assert symbols
    assert not [name for name in symbols if not re.fullmatch(EXPORTED[library], name)]


def test_control_other_symbols_are_noticed():
    assert re.fullmatch(EXPORTED["metal_ops/libhostmetal.so"], "_OBJC_CLASS_MTLArgument")
    for library, pattern in EXPORTED.items():
        for name in ("_ZN9metal_ops5ErrorEv", "__objc_class_name_MetalDeviceStream", "main"):
            assert not re.fullmatch(pattern, name), library


@pytest.mark.parametrize("library", [*EXPORTED, "metal_ops/libhwy.so.1"])
def test_needs_only_what_is_named(unpacked, library):
    """Libraries and folders: nothing but the standard library, TensorFlow's, each other, and GNUstep's."""
    dynamic = output("readelf", "-d", unpacked / library)
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    ours = {Path(name).name for name in EXPORTED} | {"libhwy.so.1"}
    metal = {"_metal_kernels.so", "libmetal_device.so", "libhostmetal.so"}
    allowed = STANDARD | TENSORFLOW | ours | (OBJECTIVE_C if Path(library).name in metal else set())
    assert needed <= allowed, needed - allowed
    assert set(re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic)) <= {"$ORIGIN"}


def test_no_folder_of_the_build_is_inside(unpacked):
    """Neither the checkout's nor TensorFlow's: they differ from machine to machine."""
    for library in EXPORTED:
        content = (unpacked / library).read_bytes()
        if b"metallib_v1_deferred" in content:
            continue  # a checkout's, which names its files; `make wheel` has none of these
        for folder in (str(ROOT), sys.prefix, "site-packages/tensorflow"):
            place = content.find(folder.encode())
            assert place < 0, (library, content[max(0, place - 80) : place + 120])


def test_auditwheel(wheels):
    def audit(wheel: Path) -> dict:
        return json.loads(output(sys.executable, "-m", "auditwheel", "show", "--json", wheel))

    package, metal = map(audit, wheels)
    assert set(package["external_libs"]) == {"libtensorflow_framework.so.2"}
    assert not package["pure"] and not metal["pure"]
    # GNUstep stands on two dozen more, which come with its package.
    assert TENSORFLOW | OBJECTIVE_C <= set(metal["external_libs"])


def test_where_tensorflow_finds_the_device_on_macos(tmp_path):
    for name in libraries.PLUGIN:
        (tmp_path / "metal_ops").mkdir(exist_ok=True)
        (tmp_path / "metal_ops" / name).touch()
    libraries.let_tensorflow_find_plugin(tmp_path)
    found = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(found) == [
        "tensorflow-plugins/libmetal_device.dylib",
        "tensorflow-plugins/libmetal_device.metallib",
    ]
    assert str(metal_ops.device.FOUND_PLUGIN).endswith(found[0].partition(".")[0] + ".dylib")
    assert [libraries.has_tensorflow_metal(r) for r in _version.TENSORFLOW_RELEASES] == [
        *(True, True, False, False)
    ]


# ---- installed ------------------------------------------------------------------------------------------------------


def test_the_installed_package_is_the_one_imported(installed):
    where = installed.run("-c", "import metal_ops; print(metal_ops.__file__)").strip()
    assert where.startswith(str(installed.site_packages))


@pytest.mark.full("other tests once more")
def test_tests_pass_outside_of_the_checkout(installed):
    out = installed.run(
        *(
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "tests/test_zero_out.py",
            "tests/test_layer.py",
        ),
        "tests/metal_kernels/on_device/test_null_op.py",
    )
    assert re.search(r"\d+ passed", out) and "failed" not in out


def test_doctor(installed):
    out = installed.run("-m", "metal_ops", "doctor")
    assert "metal_ops works" in out and "GPU:0" in out and "note:" not in out


@pytest.mark.full("builds an op, as tests/metal_kernels/test_build.py in the checkout")
def test_builds_ops_of_others(installed):
    """Compilers are the system's; headers and libraries are the installed ones."""
    samples = installed.work / "tests/metal_kernels/samples"
    files = [
        "--ops",
        "saxpy_op.cc",
        "--kernels",
        "saxpy_kernel.cc",
        "--shaders",
        "saxpy_kernel.metal",
    ]
    build = ["-m", "metal_ops", "build", *files, "-o", str(installed.work / "saxpy.so")]
    script = (
        f"import os, runpy, sys; os.chdir({str(samples)!r}); sys.argv = {['metal_ops', *build[2:]]}"
    )
    out = installed.run("-c", f"{script}; from metal_ops.cli import main; sys.exit(main())")
    assert "saxpy.so" in out and (installed.work / "saxpy.metallib").exists()


def test_another_tensorflow_is_refused_in_a_sentence(installed):
    out = installed.run(
        "-c",
        "import tensorflow as tf; tf.__version__ = '2.99.0'\n"
        "try:\n    import metal_ops\nexcept ImportError as error:\n    print(error)",
    )
    built = metal_ops._library.build_info()["tensorflow"]
    assert f"was built for TensorFlow {built}, but TensorFlow 2.99.0 is installed" in out
    assert f"pip install 'tensorflow~={RELEASE}.0'" in out


def test_without_the_metal_half(new_environment: Callable[..., Environment]):
    environment = new_environment("cpu_only", INSTALL_WHEEL)
    program = (
        "import metal_ops\n"
        "print(metal_ops.zero_out([5, 4]).numpy())\n"
        "try:\n    metal_ops.device.load()\nexcept metal_ops.device.DeviceError as error:\n    print(error)"
    )
    out = environment.run("-c", program)
    assert out.startswith("[5 0]\n") and "pip install 'tensorflow-metal-ops[metal]'" in out


def test_without_gnustep(installed, tmp_path):
    """A copy of the runtime that asks for a library of another name, as a system without GNUstep would not have it."""
    library = installed.site_packages / "metal_ops/libhostmetal.so"
    content = library.read_bytes()
    assert content.count(b"libgnustep-base.so.1.28\0") == 1
    other = tmp_path / "libhostmetal.so"
    other.write_bytes(content.replace(b"libgnustep-base.so.1.28\0", b"libgnustep-base.so.1.99\0"))
    program = (
        "import pathlib, sys\nfrom metal_ops import device\ndevice.HOSTMETAL = pathlib.Path(sys.argv[1])\n"
        "try:\n    device.load()\nexcept device.DeviceError as error:\n    print(error)"
    )
    out = installed.run("-c", program, str(other))
    assert "libgnustep-base.so.1.99 is missing" in out
    assert "sudo apt-get install libgnustep-base1.28 libobjc4" in out
