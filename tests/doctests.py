"""Runs the examples in the docstrings of one file of the package."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
from pathlib import Path

import numpy as np
import tensorflow as tf

import metal_ops

PACKAGE = Path(metal_ops.__file__).parent


class ToTheDigitsShown(doctest.OutputChecker):
    """Numbers agree if they do so to the decimals that the example shows: float32 0.777 prints as 0.77700001."""

    NUMBER = re.compile(r"-?\d+\.\d+")

    def check_output(self, want: str, got: str, flags: int) -> bool:
        shown, printed = self.NUMBER.findall(want), self.NUMBER.findall(got)
        if len(shown) == len(printed):
            rounded = iter(
                f"{float(p):.{len(s.split('.')[1])}f}" for s, p in zip(shown, printed, strict=True)
            )
            got = self.NUMBER.sub(lambda _: next(rounded), got)
        return super().check_output(want, got, flags)


def run(path: Path) -> None:
    """Fails if an example prints something else than it shows, or if the file has none that runs."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    name = ".".join(parts).removesuffix(".__init__")
    module = importlib.import_module(name)
    globs = vars(module) | {"metal_ops": metal_ops, "tf": tf, "np": np}
    runner, report = doctest.DocTestRunner(ToTheDigitsShown(), optionflags=doctest.ELLIPSIS), []
    # From the text, as doctest's own search passes over decorated functions.
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (
            text := ast.get_docstring(node)
        ):
            where = f"{name}.{getattr(node, 'name', '')}"
            example = doctest.DocTestParser().get_doctest(text, dict(globs), where, str(path), None)
            assert not any(doctest.SKIP in each.options for each in example.examples), where
            runner.run(example, out=report.append)
    assert runner.tries > 0
    assert not runner.failures, "".join(report)
