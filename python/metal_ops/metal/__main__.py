"""`python -m metal_ops.metal ...`, or `python <this folder> ...` where nothing is installed."""

import importlib
import importlib.util
import sys
from pathlib import Path

if not __package__:
    # Run as a folder: load it as a package under a name of its own, so that metal_ops (and TensorFlow) stay out.
    here = Path(__file__).resolve().parent
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != here]
    spec = importlib.util.spec_from_file_location(
        "metal_shader_compiler", here / "__init__.py", submodule_search_locations=[str(here)]
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    package = spec.name
else:
    package = __package__

# The code of one kernel, as the runtime asks for it, needs no part that reads sources.
name = "deferred" if sys.argv[1:2] == ["--from-deferred"] else "cli"
sys.exit(importlib.import_module(f"{package}.{name}").main())
