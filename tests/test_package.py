"""Rules that hold for the whole package: no private imports, every example runs, every public function has one."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.metadata
import inspect
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import metal_ops
from metal_ops import cli
from tests import doctests

pytestmark = pytest.mark.packaging

PACKAGE = Path(metal_ops.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
PRIVATE = (
    "tensorflow.python",
    "tensorflow.core",
    "tensorflow.compiler",
    "tensorflow._api",
    "keras.src",
    "tf.__internal__",
)


def names_used(source: str) -> list[tuple[int, str]]:
    """(line, dotted name) of every import and every attribute chain."""

    def dotted(node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            base = dotted(node.value)
            return f"{base}.{node.attr}" if base else None
        return None

    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Attribute) and (name := dotted(node)):
            found.append((node.lineno, name.replace("tf.python", "tensorflow.python")))
    return found


def private_names(source: str) -> list[tuple[int, str]]:
    return [
        (line, name)
        for line, name in names_used(source)
        if f"{name}.".startswith(tuple(f"{p}." for p in PRIVATE))
    ]


# Each with its reason.
EXCEPTIONS = {
    # TensorFlow has no public way to load a device plugin after its own import.
    "device.py": ["tensorflow.python.framework.load_library"],
    # The public way to see the graphs that ran goes on collecting them when it is asked to stop.
    "_placement.py": ["tensorflow.python.eager.context"],
    # Nor is there a function to see each op as it is called, and its kernels.
    "_fallback.py": [
        "tensorflow.python.eager.context",
        "tensorflow.python.framework.op_callbacks",
        "tensorflow.python.framework.dtypes",
        "tensorflow.python.framework.kernels",
        "tensorflow.python.framework.op_def_registry",
    ],
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_private_imports(path: Path):
    """They can change in any release of TensorFlow or Keras."""
    found = [name for _, name in private_names(path.read_text())]
    assert found == EXCEPTIONS.get(str(path.relative_to(PACKAGE)), [])


@pytest.mark.parametrize(
    "source",
    [
        "from tensorflow.python.framework import ops",
        "import tensorflow.python.eager.context as c",
        "from tensorflow.python import pywrap_tfe",
        "import tensorflow as tf\ntf.python.framework.ops",
        "from keras.src.optimizers import adam",
        "import tensorflow as tf\nx = tf.__internal__.dispatch",
        "def f():\n    from tensorflow.core.framework import kernel_def_pb2",
    ],
)
def test_control_private_imports_are_found(source):
    assert private_names(source)
    assert not private_names(
        "import tensorflow as tf\nfrom keras import layers\ntf.raw_ops.ResourceApplyAdam"
    )


def test_control_examples_notice_other_numbers():
    same = doctests.ToTheDigitsShown().check_output
    assert same("[0.777, -1.0]\n", "[0.77700001, -1.0]\n", 0)
    assert not same("[0.777, -1.0]\n", "[0.7776, -1.0]\n", 0)
    assert not same("[0.777, -1.0]\n", "[0.777, 1.0]\n", 0)
    assert not same("[0.777]\n", "[0.777, 0.777]\n", 0)


@pytest.mark.parametrize(
    "example, fails",
    [(">>> 1 + 1\n2", False), (">>> 1 + 1\n3", True), (">>> none()", True), ("1 + 1", True)],
)
def test_control_broken_examples_fail(example, fails, tmp_path, monkeypatch):
    package = tmp_path / f"with_examples_{abs(hash(example))}"
    package.mkdir()
    (package / "functions.py").write_text(f'"""Example:\n\n{example}\n"""\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctests, "PACKAGE", package)
    with pytest.raises(AssertionError) if fails else contextlib.nullcontext():
        doctests.run(package / "functions.py")


# These run where the device is loaded: tests/device/on_device, test_state.py and test_report.py.
ON_DEVICE = {PACKAGE / name for name in ("device.py", "_placement.py", "profiler.py")}
# Those of PyTorch run in tests/torch.
EXAMPLES = [
    path
    for path in FILES
    if ">>> " in path.read_text() and path not in ON_DEVICE and path.parent.name != "torch"
]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_examples_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    doctests.run(path)


def public_objects():
    for name in metal_ops.__all__:
        value = getattr(metal_ops, name)
        if not inspect.ismodule(value):
            yield name, value
        elif value.__name__ not in ("metal_ops.ops", "metal_ops.raw_ops"):
            yield from ((f"{name}.{each}", getattr(value, each)) for each in value.__all__)


PUBLIC = dict(public_objects())


def undocumented(value) -> list[str]:
    """The parts that the docstring of a public function or class lacks."""
    text = inspect.getdoc(value) or ""
    first = (text.splitlines() or [""])[0].rstrip()
    missing = [] if first.endswith((".", "`.", ")")) or ":" in first else ["a summary line"]
    if inspect.isclass(value) and issubclass(value, Exception):
        return missing
    fields = getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None)
    if inspect.isclass(value) and fields and "Example:" not in text:  # a plain record
        return missing + [name for name in fields if not re.search(rf"^ *{name}: ", text, re.M)]
    missing += [] if "Example:" in text else ["Example:"]
    if inspect.isfunction(value):
        signature = inspect.signature(value)
        names = {name: p for name, p in signature.parameters.items() if name != "self"}
        missing += [n for n in names if not re.search(rf"^ *\*{{0,2}}{n}: ", text, re.M)]
        missing += [f"hint of {n}" for n, p in names.items() if p.annotation is p.empty]
        if signature.return_annotation not in ("None", None) and "Returns:" not in text:
            missing.append("Returns:")
    return missing


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name):
    assert undocumented(PUBLIC[name]) == []


def test_control_what_is_undocumented_is_seen():
    def all_said(x: int) -> int:
        """Counts.

        Args:
          x: How far.

        Returns:
          x.

        Example:
          >>> all_said(1)
        """

    def no_argument(x: int) -> int:
        pass

    def no_return(x: int) -> int:
        pass

    no_argument.__doc__ = all_said.__doc__.replace("x: How far", "y: How far")
    no_return.__doc__ = all_said.__doc__.replace("Returns:", "Gives:")
    assert undocumented(all_said) == []
    assert undocumented(no_argument) == ["x"] and undocumented(no_return) == ["Returns:"]
    assert undocumented(type("Plain", (), {"__doc__": "A class."})) == ["Example:"]


def test_type_checkers_see_the_public_names(tmp_path):
    """A user's code is checked against our hints: the lazy import and the search for op files must not hide them."""
    mypy = pytest.importorskip("mypy.api")
    user = tmp_path / "user.py"
    user.write_text(
        "import metal_ops\n"
        "metal_ops.hash_encode([[0.5, 0.5, 0.5]], [[1.0]], metal_ops.HashGrid())\n"
        "metal_ops.hash_encode([[0.5, 0.5, 0.5]], [[1.0]], 'a grid')\n"
        "metal_ops.layers.HashEncoding(seed='a seed')\n"
        "metal_ops.hash_decode\n"
    )
    out, _, _ = mypy.run(
        ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent", str(user)]
    )
    wrong = [(int(line.split(":")[1]), line) for line in out.splitlines() if "user.py:" in line]
    assert [line for line, _ in wrong] == [3, 4, 5], out
    assert (PACKAGE / "py.typed").exists()


def test_raw_ops_lists_its_ops():
    names = dir(metal_ops.raw_ops)
    assert {"zero_out", "hash_encode", "hash_encode_grad", "hash_encode_jvp_point_grad"} <= set(
        names
    )
    assert not [name for name in names if not callable(getattr(metal_ops.raw_ops, name))]
    with pytest.raises(AttributeError, match="metal_ops.raw_ops has no op 'hash_decode'"):
        _ = metal_ops.raw_ops.hash_decode


def test_ops_are_found_by_file_name():
    files = {path.stem for path in (PACKAGE / "ops").glob("*.py") if not path.stem.startswith("_")}
    for name in files:
        module = importlib.import_module(f"metal_ops.ops.{name}")
        for public in module.__all__:
            assert getattr(metal_ops, public) is getattr(module, public)


# ---- command line ---------------------------------------------------------------------------------------------------


def test_autograph_leaves_the_ops_alone(caplog):
    """In users' functions ops are called, not rewritten: AutoGraph warns of functions that it cannot rewrite."""
    x = tf.ones([2, 5, 3])

    def said(function: Callable[..., Any]) -> str:
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="tensorflow"):
            tf.function(lambda: function(x))()
        return caplog.text

    assert "AutoGraph" not in said(metal_ops.sh_encode)
    for name in metal_ops.ops.__all__:
        function = getattr(metal_ops, name)
        if inspect.isfunction(function):
            assert set(vars(tf.autograph.experimental.do_not_convert(lambda: None))) <= {
                *vars(function),
                "__wrapped__",
            }, name


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    for word in ("doctor", "first steps", "metal_ops.HashGrid", "--help"):
        assert word in out
    assert cli.main([]) == 0 and "first steps" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out.strip() == f"metal_ops {metal_ops.__version__}"


def test_unknown_command(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["docter"])
    assert stopped.value.code == 2
    assert "invalid choice: 'docter'" in capsys.readouterr().err


def test_commands_without_their_module_are_not_listed(capsys, monkeypatch):
    monkeypatch.setitem(cli.COMMANDS, "dream", ("dream.cli", "Not there"))
    assert "dream" not in cli.available() and "doctor" in cli.available()
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "dream" not in capsys.readouterr().out


@pytest.mark.parametrize("command", cli.available())
def test_every_command_has_help(command, capsys):
    try:
        code = cli.main([command, "--help"])
    except SystemExit as stopped:  # argparse's way
        code = stopped.code
    assert code == 0
    out = capsys.readouterr().out
    assert "usage: " in out and command in out


@pytest.mark.parametrize(
    "command", ["nerf", "nerf train", "nerf eval", "nerf render", "nerf compare", "fusion", "fusion explain", "build",
                "cmake", "run"],
)  # fmt: skip
def test_examples_in_help_are_understood(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([*command.split(), "--help"])
    out = capsys.readouterr().out
    examples = re.findall(r"^  python -m metal_ops (.*?)(?:   *\S.*)?$", out, re.M)
    assert examples
    for example in examples:
        arguments = re.sub(r" \[.*\]| > .*", "", example).split()  # "[its arguments]"
        assert cli.make_parser(arguments[0]).parse_args(arguments).run


def test_a_broken_library_is_a_sentence_not_a_traceback(capsys, monkeypatch):
    def run(_):
        raise metal_ops._library.LibraryError(
            "metal_ops: the op library is missing; run `make build`."
        )

    monkeypatch.setattr("metal_ops.doctor.run", run)
    assert cli.main(["doctor"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("metal_ops: the op library is missing") and "Traceback" not in err


def test_version_is_everywhere_the_same():
    """The package's ends with TensorFlow's release, too."""
    release = ".".join(tf.__version__.split(".")[:2])
    version = importlib.metadata.version("tensorflow-metal-ops")
    assert version == f"{metal_ops.__version__}+tf{release}"
    assert metal_ops._library.build_info()["version"] == metal_ops.__version__
