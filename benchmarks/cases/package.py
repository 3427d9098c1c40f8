"""Loading a package and a SavedModel of one model, and calling the results.

Times are the processor's, of all threads: the work is the same on a machine that does other work besides.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.registry import Case, Contender, Context, register

LENGTH, WIDTH, BLOCKS = 64, 256, 6


def resnet50() -> tuple[Any, np.ndarray]:
    import keras

    model = keras.applications.ResNet50(weights=None)
    return model, np.random.default_rng(1).uniform(-1, 1, [1, 224, 224, 3]).astype(np.float32)


def transformer() -> tuple[Any, np.ndarray]:
    """Blocks of attention and a wide layer, as Keras has them."""
    import keras

    tokens = keras.Input([LENGTH], dtype="int32", name="tokens")
    x = keras.layers.Embedding(1000, WIDTH)(tokens)
    for _ in range(BLOCKS):
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.MultiHeadAttention(8, WIDTH // 8)(y, y)
        x = keras.layers.Add()([x, y])
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.Dense(4 * WIDTH, activation="gelu")(y)
        x = keras.layers.Add()([x, keras.layers.Dense(WIDTH)(y)])
    model = keras.Model(tokens, keras.layers.Dense(1000, name="logits")(x))
    return model, np.random.default_rng(1).integers(0, 1000, [1, LENGTH]).astype(np.int32)


def quantized() -> tuple[Any, np.ndarray]:
    """The transformer's layers of products with weights of eight bits."""
    import metal_ops

    model, tokens = transformer()
    return metal_ops.quantize_model(model, metal_ops.QuantizationSpec()), tokens


MODELS: dict[str, tuple[Callable[[], tuple[Any, np.ndarray]], str]] = {
    "resnet50": (resnet50, "ResNet50, a picture of 224x224"),
    "transformer": (transformer, f"a transformer of {BLOCKS} blocks of {WIDTH}, {LENGTH} tokens"),
    "quantized": (quantized, "the transformer with weights of 8 bits"),
}


class Saved:
    """A model as a package and as a SavedModel."""

    def __init__(self, make: Callable[[], tuple[Any, np.ndarray]], context: Context):
        import keras
        import tensorflow as tf

        from metal_ops import package

        keras.utils.set_random_seed(0)
        model, given = make()
        folder = Path(context.stack.enter_context(tempfile.TemporaryDirectory()))
        self.given = tf.constant(given)
        self.package = package.save(model, folder / "model.mpkg")
        self.saved_model = folder / "saved"
        model.export(str(self.saved_model), verbose=False)

    def load_package(self, **options: Any) -> Callable[[Any], Any]:
        from metal_ops import package

        return package.load(self.package, **options)

    def load_saved_model(self) -> Callable[[Any], Any]:
        import tensorflow as tf

        loaded = tf.saved_model.load(str(self.saved_model))
        signature = loaded.signatures["serving_default"]
        (name,) = signature.structured_input_signature[1]

        return partial(_keeping, loaded, signature, name)

    @property
    def sizes(self) -> tuple[str, str]:
        """Sizes of both, in MB."""
        files = [path for path in self.saved_model.rglob("*") if path.is_file()]
        both = self.package.stat().st_size, sum(path.stat().st_size for path in files)
        return f"{both[0] / 1e6:.1f} MB", f"{both[1] / 1e6:.1f} MB"


def _keeping(loaded: Any, signature: Any, name: str, given: Any) -> Any:
    """Calls a signature; `loaded` holds its variables."""
    del loaded
    (result,) = signature(**{name: given}).values()
    return result


def _milliseconds(work: Callable[[], Any]) -> float:
    gc.collect()
    begin = time.process_time()
    work()
    return 1e3 * (time.process_time() - begin)


def loading(make: Callable[[], tuple[Any, np.ndarray]], context: Context) -> list[Contender]:
    saved = Saved(make, context)
    package_size, saved_model_size = saved.sizes

    def contender(name: str, load: Callable[[], Any], note: str) -> Contender:
        return Contender(
            name,
            lambda: _milliseconds(load),
            lambda: {"output": load()(saved.given).numpy()},
            f"processor time; {note}",
        )

    def called(load: Callable[[], Any]) -> Callable[[], Any]:
        def work() -> Any:
            function = load()
            function(saved.given).numpy()
            return function

        return work

    unchecked = partial(saved.load_package, verify=False, warm=False)
    return [
        contender("package", saved.load_package, f"hashes and a first run; {package_size}"),
        contender("package, without hashes and first run", unchecked, "verify=False, warm=False"),
        contender("SavedModel", saved.load_saved_model, saved_model_size),
        contender("package and first call", called(saved.load_package), ""),
        contender("SavedModel and first call", called(saved.load_saved_model), ""),
    ]


def calling(make: Callable[[], tuple[Any, np.ndarray]], context: Context) -> list[Contender]:
    saved = Saved(make, context)
    later, other = saved.load_package(), saved.load_saved_model()
    for function in (later, other):
        function(saved.given)

    def first(**options: Any) -> float:
        function = saved.load_package(**options)
        return _milliseconds(lambda: function(saved.given).numpy())

    def again(function: Callable[[Any], Any]) -> Callable[[], float]:
        return lambda: _milliseconds(lambda: function(saved.given).numpy())

    note = "processor time"
    return [
        Contender(
            "package, later call",
            again(later),
            lambda: {"output": later(saved.given).numpy()},
            note,
        ),
        Contender("package, first call", first, None, note),
        Contender(
            "package, first call without a run at load", lambda: first(warm=False), None, note
        ),
        Contender(
            "SavedModel, later call",
            again(other),
            lambda: {"output": other(saved.given).numpy()},
            note,
        ),
    ]


for _name, (_make, _title) in MODELS.items():
    register(
        Case(
            group="package",
            name=f"package-load-{_name}",
            title=f"loading {_title}",
            contenders=partial(loading, _make),
            in_quick=False,
        )
    )
    register(
        Case(
            group="package",
            name=f"package-call-{_name}",
            title=f"calling {_title}",
            contenders=partial(calling, _make),
            in_quick=False,
        )
    )
