"""Shared by the commands of the language model: configurations out of options, texts, and models to write with."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metal_ops.programs.command import naming_options, train_config, use_device
from metal_ops.programs.errors import ProgramError
from metal_ops.programs.reading import kind_of
from metal_ops.programs.telling import loading, phase

from .config import ModelConfig, TrainConfig

if TYPE_CHECKING:
    from rich.console import Console

    from .model import Transformer
    from .tokenizers import Tokenizer

MODEL, TRAIN = ModelConfig(), TrainConfig()
SIZES = ("width", "layers", "heads", "kv_heads", "hidden")


def configs(arguments: argparse.Namespace) -> tuple[ModelConfig, TrainConfig]:
    """The configuration that the arguments spell."""
    with naming_options():
        model = ModelConfig(**{name: getattr(arguments, name) for name in (*SIZES, "context")})
        return model, train_config(TrainConfig, arguments, "batch", "learning_rate")


def load_text(data: str | None, context: int, console: Console) -> Any:
    from . import text

    with phase(console, "reading the text"):
        parts = text.load(data, context)
    loading(console)
    console.print(
        f"Text: {data or text.STANDARD_LIBRARY}, {parts[0].size:,} bytes and {parts[1].size:,} held back.",
        highlight=False,
        soft_wrap=True,
    )
    return parts


def of_run(arguments: argparse.Namespace, console: Console) -> tuple[Transformer, None]:
    from metal_ops.programs import checkpoint
    from metal_ops.programs.records import record_from, take_state

    if arguments.context is not None:
        raise ProgramError("--context: a run has the one that it was trained with; leave it out.")
    _no_model(Path(arguments.folder))
    header, arrays, where = checkpoint.load_run(arguments.folder, "lm")
    loading(_beside(console))
    use_device(arguments, console)
    from .config import ModelConfig
    from .model import Transformer

    model = Transformer(record_from(header, "model", ModelConfig, where))
    take_state(model.state(), arrays, where)
    return model, None


def _beside(console: Console) -> Console:
    """The standard error: the text that commands write may go to other programs."""
    return type(console)(stderr=True, markup=False, emoji=False)


def _no_model(path: Path) -> None:
    """Refuses a model from a file where a run is expected: it goes by --model."""
    if path.suffix.lower() in (".gguf", ".safetensors") or (path / "config.json").is_file():
        raise ProgramError(
            f"{path}: is a model from a file, and the folder of a run is expected; give it by --model {path}."
        )


def of_files(arguments: argparse.Namespace, console: Console) -> tuple[Transformer, Tokenizer]:
    if not kind_of(arguments.model, ProgramError):  # before TensorFlow is imported
        raise ProgramError(
            f"{arguments.model}: no such model; give a .gguf, a .safetensors or a folder."
        )
    loading(_beside(console))
    use_device(arguments, console)
    from .pretrained import load

    with console.status("reading the model"):
        model, tokenizer = load(arguments.model, arguments.context)
    config = model.config
    console.print(
        f"Model {arguments.model}: {config.layers} layers, width {config.width}, {config.vocabulary:,} tokens, "
        f"{model.n_bytes():,} bytes.",
        highlight=False,
        soft_wrap=True,
    )
    return model, tokenizer
