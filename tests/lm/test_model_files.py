"""Files of models: types of GGUF's tensors, parts, indices, and the fields that are refused by name."""

from __future__ import annotations

import json
import re
import shutil
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save_file

from metal_ops import QuantizedWeights, dequantize
from metal_ops.lm import gguf as ours
from metal_ops.lm import of_metadata, pretrained, weights
from metal_ops.lm.gguf import Gguf
from metal_ops.lm.llama import as_weights
from metal_ops.lm.weights import WeightsError
from metal_ops.programs import reading
from tests.lm import families
from tests.lm.families import CASES, LOOKED_AT, prompt

EXPECTED = np.load(families.EXPECTED)
CODES = ("Q4_0", "Q4_1", "Q8_0", "Q4_K")  # formats that stay codes


def logits_of(path: Path, context: int | None = None) -> np.ndarray:
    model = pretrained.load(path, context)[0]
    return model(tf.constant([prompt()], tf.int32)).numpy()[0, list(LOOKED_AT)]


def check(path: Path, name: str) -> None:
    assert np.abs(logits_of(path) - EXPECTED[f"{name} logits"]).max() < 1e-3


# ---- types ----------------------------------------------------------------------------------------------------------


def has_floats(kind: gguf.GGMLQuantizationType) -> bool:
    try:
        gguf.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


@pytest.mark.parametrize("kind", [k.name for k in gguf.GGMLQuantizationType if has_floats(k)])
def test_every_type_of_the_package(kind, tmp_path):
    """Any blocks, as the package's own reader finds and its own functions dequantize them."""
    number = gguf.GGMLQuantizationType[kind]
    per, size = gguf.GGML_QUANT_SIZES[number]
    random = np.random.default_rng(0)
    rows = random.integers(0, 256, (5, 3 * size), np.uint8)
    if kind in ("F16", "F32", "BF16"):
        rows = gguf.quantize(random.standard_normal((5, 3)).astype(np.float32), number)
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tensor("first", np.arange(5, dtype=np.float32))
    writer.add_tensor("some", rows, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = gguf.GGUFReader(tmp_path / "a.gguf").tensors[1]
    with np.errstate(all="ignore"):
        right = gguf.dequantize(read.data, read.tensor_type)
    file = Gguf(tmp_path / "a.gguf")
    assert file.shapes["some"] == (5, 3 * per)
    np.testing.assert_array_equal(file.floats("some"), right)
    found = as_weights(file.packed("some"))
    taken = found.n_bytes if kind in CODES else found.dtype.size * found.shape.num_elements()
    assert file.n_bytes("some") == taken
    assert isinstance(found, QuantizedWeights) == (kind in CODES)
    if kind in CODES:
        found = np.where(np.isfinite(right.T), dequantize(found), 0)
        right = np.where(np.isfinite(right), right, 0)
    np.testing.assert_allclose(found, right.T, rtol=2e-3, atol=1e-2 * np.nanmean(np.abs(right)))


@pytest.mark.parametrize("kind", ["Q5_0", "Q8_0", "Q4_1", "MXFP4"])
def test_matrices_of_a_type(kind, tmp_path):
    """The model gives the same as one of the blocks' values in floats."""
    config = CASES["qwen3"]
    tensors = families.weights(config)
    number = gguf.GGMLQuantizationType[kind]
    ends = ("attn_q.weight", "attn_output.weight", "ffn_up.weight", "token_embd.weight")
    meant = dict(tensors)
    for name, values in tensors.items():
        if families.gguf_name(name, False).endswith(ends):
            meant[name] = gguf.dequantize(gguf.quantize(values, number), number)
    assert any((meant[name] != values).any() for name, values in tensors.items())
    few, floats = tmp_path / "few.gguf", tmp_path / "floats.gguf"
    families.write_gguf(few, config, tensors, kinds=dict.fromkeys(ends, kind))
    families.write_gguf(floats, config, meant)
    right = logits_of(floats)
    assert np.abs(logits_of(few) - right).max() < 1e-3 * np.abs(right).max()


def test_codes_need_less_memory_than_floats(tmp_path, monkeypatch):
    """A machine that has too little for floats reads them."""
    config = CASES["qwen3"]
    tensors = families.weights(config)
    n = sum(values.size for values in tensors.values())
    names = ("output", "token_embd", "attn_q", "attn_k", "attn_v", "ffn_up", "ffn_gate")
    kinds = {f"{name}.weight": "Q8_0" for name in names}
    monkeypatch.setattr(reading, "memory", lambda: 6 * n)
    families.write_gguf(tmp_path / "a.gguf", config, tensors, kinds=kinds)
    pretrained.load(tmp_path / "a.gguf", None)
    families.write_gguf(tmp_path / "b.gguf", config, tensors)
    with pytest.raises(WeightsError, match="would take .*; give a smaller model"):
        pretrained.load(tmp_path / "b.gguf", None)


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_1"])
def test_scales_beside_matrices(kind, tmp_path):
    """llama.cpp multiplies by tensors named `.scale`: NVFP4's second scale."""
    config = CASES["qwen3"]
    tensors = families.weights(config)
    name = "model.layers.1.mlp.up_proj.weight"
    more = {"blk.1.ffn_up.scale": np.array([0.25], np.float32)}
    kinds = {"ffn_up.weight": kind}
    families.write_gguf(tmp_path / "a.gguf", config, tensors, kinds=kinds)
    tensors[name] = 4 * tensors[name]
    families.write_gguf(tmp_path / "b.gguf", config, tensors, kinds=kinds, more=more)
    assert np.abs(logits_of(tmp_path / "a.gguf") - logits_of(tmp_path / "b.gguf")).max() < 2e-3


def test_scales_of_other_formats_are_none(tmp_path):
    config = CASES["qwen3"]
    tensors = families.weights(config)
    more = {"model.layers.1.mlp.up_proj.scale": np.array([0.25], np.float32)}
    with pytest.raises(WeightsError, match="'model.layers.1.mlp.up_proj.scale' is none that such"):
        pretrained.load(families.write(tmp_path / "a", config, tensors | more), None)
    more = {"blk.1.ffn_up.input_scale": np.array([0.25], np.float32)}
    check(
        families.write_gguf(
            tmp_path / "a.gguf", config, tensors, {"rope.freq_base": 1e6}, more=more
        ),
        "qwen3",
    )


def test_a_package_that_is_not_installed(tmp_path, monkeypatch):
    import sys

    config = CASES["default"]
    families.write(tmp_path / "a", config, families.weights(config))
    families.write_gguf(tmp_path / "a.gguf", config, families.weights(config))
    ours._type.cache_clear()
    for package, path in (("gguf", tmp_path / "a.gguf"), ("safetensors", tmp_path / "a")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(WeightsError, match=f"run `pip install {package}=="):
            pretrained.load(path, None)


# ---- which files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0, 2])
def test_the_parts_of_a_split_gguf(part, tmp_path):
    config = CASES["qwen2"]
    families.write_gguf(tmp_path / "a.gguf", config, families.weights(config), split=15)
    parts = sorted(tmp_path.glob("*.gguf"))
    assert len(parts) == 3
    check(parts[part], "qwen2")


def test_parts_that_do_not_fit(tmp_path):
    config = CASES["qwen2"]
    families.write_gguf(tmp_path / "a.gguf", config, families.weights(config), split=15)
    first, second, third = sorted(tmp_path.glob("*.gguf"))
    other = shutil.copy(first, tmp_path / "first.gguf")
    with pytest.raises(WeightsError, match="'split.count' is 3, and the name of a part must end"):
        pretrained.load(other, None)
    content = second.read_bytes()
    shutil.copy(third, second)
    with pytest.raises(WeightsError, match=re.escape("part 2 (from 0) of 3, expected 1 of 3")):
        pretrained.load(first, None)
    second.write_bytes(content)
    third.unlink()
    with pytest.raises(WeightsError, match="00003-of-00003.gguf: no such file, which is a part of"):
        pretrained.load(first, None)


def test_a_folder_without_a_description(tmp_path):
    config = CASES["qwen3"]
    path = families.write(tmp_path / "model", config, families.weights(config))
    (path / "config.json").unlink()
    with pytest.raises(WeightsError, match="config.json: no such file, .*; get it, too"):
        pretrained.load(path, None)


def sharded(folder: Path, name: str, changes: dict | None = None) -> Path:
    """A folder with an index, and with files beside its shards that are not the model."""
    config = CASES[name]
    tensors = families.weights(config)
    families.write(folder, config, tensors)
    (folder / "model.safetensors").unlink()
    names = list(tensors)
    index = {}
    for i in range(2):
        shard = f"model-0000{i + 1}-of-00002.safetensors"
        save_file({n: tensors[n] for n in names[i::2]}, folder / shard)
        index |= dict.fromkeys(names[i::2], shard)
    for stray in ("consolidated", "adapter_model", "model-00001-of-00009", "original"):
        save_file({names[0]: np.zeros((2, 2), np.float32)}, folder / f"{stray}.safetensors")
    index |= changes or {}
    path = folder / weights.INDEX
    path.write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def test_the_index_decides(tmp_path):
    folder = sharded(tmp_path / "a", "default")
    check(folder, "default")
    check(folder / "model-00002-of-00002.safetensors", "default")


def test_without_an_index(tmp_path):
    config = CASES["default"]
    tensors = families.weights(config)
    folder = families.write(tmp_path / "a", config, tensors)
    save_file({"x": np.zeros(2, np.float32)}, folder / "adapter_model.safetensors")
    save_file({"x": np.zeros(2, np.float32)}, folder / "consolidated.safetensors")
    check(folder, "default")
    (folder / "model.safetensors").unlink()
    for file in folder.glob("*.safetensors"):
        file.unlink()
    # The later ones go before the earlier ones.
    for name, words in (
        ("", "; give the folder of a model"),
        ("model.onnx", "; 'model.onnx' is not read: take the folder that it was exported from"),
        ("adapter_model.safetensors", "is not read: an adapter, give the folder of its base, or join both by peft"),
        ("consolidated.00.pth", "is not read: get the same model's model.* and config.json"),
        ("pytorch_model-00001-of-00002.bin", "safetensors of it by transformers: AutoModelForCausalLM.from_pre"),
        ("b.gguf", "; give 'b.gguf' in it"),
    ):  # fmt: skip
        if name:
            (folder / name).touch()
        with pytest.raises(WeightsError, match="holds no .safetensors of a model .*" + words):
            pretrained.load(folder, None)
    for name, words in (
        ("pytorch_model.bin", "; make safetensors of it"),
        ("a.txt", r"\.$"),
    ):
        (folder / name).touch()
        with pytest.raises(
            WeightsError, match="expected a .gguf, a .safetensors or a folder" + words
        ):
            pretrained.load(folder / name, None)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"model.norm.weight": "../a/model.safetensors"}, "names '../a/model.safetensors' for 'model.norm.weight'"),
        ({"model.norm.weight": 3}, "'weight_map' names 3"),
        ({"more": "model-00001-of-00002.safetensors"}, "tensor 'more' is missing, which model.safetensors.index.json"),
        ({"more": "nowhere.safetensors"}, "nowhere.safetensors: no such model"),
    ],
)  # fmt: skip
def test_an_index_that_is_wrong(changes, words, tmp_path):
    with pytest.raises(WeightsError, match=re.escape(words)):
        pretrained.load(sharded(tmp_path / "a", "default", changes), None)


@pytest.mark.parametrize("tied", [False, True, None])
def test_a_head_counts_where_it_is(tied, tmp_path):
    """As in transformers 5: one that differs from the embedding is no tied one, whatever the field says."""
    config = {k: v for k, v in CASES["default"].items() if k != "tie_word_embeddings"}
    config |= {} if tied is None else {"tie_word_embeddings": tied}
    tensors = families.weights({**config, "tie_word_embeddings": False})
    check(families.write(tmp_path / "a", config, tensors), "default")
    head = tensors.pop("lm_head.weight")
    families.write(tmp_path / "b", config, tensors)
    if tied is False:
        with pytest.raises(WeightsError, match="'lm_head.weight' is missing"):
            pretrained.load(tmp_path / "b", None)
    else:
        assert np.abs(logits_of(tmp_path / "b") - EXPECTED["default logits"]).max() > 1
    del tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = head
    families.write(tmp_path / "c", config, tensors)
    if tied:
        assert pretrained.load(tmp_path / "c", None)[0].head is None
    else:
        with pytest.raises(WeightsError, match="'model.embed_tokens.weight' is missing"):
            pretrained.load(tmp_path / "c", None)


def test_bfloat16_and_halves(tmp_path):
    import ml_dtypes

    config = CASES["qwen3"]
    tensors = families.weights(config)
    for kind in (ml_dtypes.bfloat16, np.float16):
        few = {name: values.astype(kind) for name, values in tensors.items()}
        meant = {name: values.astype(np.float32) for name, values in few.items()}
        families.write(tmp_path / "few", config, few)
        families.write(tmp_path / "floats", config, meant)
        np.testing.assert_array_equal(logits_of(tmp_path / "few"), logits_of(tmp_path / "floats"))


@pytest.mark.parametrize("at", ["language_model.model.", "model.language_model."])
def test_the_text_of_a_model_with_pictures(at, tmp_path):
    """Their logits of text are those of the model without them, in transformers, too."""
    inner = CASES["gemma3-older"]
    tensors = {name.replace("model.", at): v for name, v in families.weights(inner).items()}
    other = "vision_tower.encoder.weight" if at[0] == "l" else "model.vision_tower.encoder.weight"
    pictures = {other: np.ones((2, 2), np.float32)}
    text = {k: v for k, v in inner.items() if k not in ("model_type", "tie_word_embeddings")}
    config = {
        "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": text,
        "vision_config": {"hidden_size": 16}, "mm_tokens_per_image": 256, "image_token_index": 7,
    }  # fmt: skip
    check(families.write(tmp_path / "a", config, tensors | pictures), "gemma3-older")
    with pytest.raises(WeightsError, match="'some_scale' is 2"):
        pretrained.load(families.write(tmp_path / "b", {**config, "some_scale": 2}, tensors), None)
    families.write(tmp_path / "c", inner, families.weights(inner) | pictures)
    with pytest.raises(WeightsError, match="is none that such a model has"):
        pretrained.load(tmp_path / "c", None)


# ---- fields ---------------------------------------------------------------------------------------------------------

SCALED = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}


@pytest.mark.parametrize(
    "name, changes, words",
    [
        ("default", {"model_type": "mixtral"}, "'model_type' is 'mixtral', expected 'llama' or 'mistral' or 'qwen2'"),
        ("default", {"num_local_experts": 8}, "'num_local_experts' is 8, which is not supported: models with exp"),
        ("default", {"embedding_multiplier": 12.0}, "'embedding_multiplier' is 12.0"),
        ("default", {"sliding_window": 4096}, "'sliding_window' is 4096"),
        ("default", {"per_layer_config": {"0": {}}}, "'per_layer_config' is"),
        ("default", {"is_encoder_decoder": True}, "'is_encoder_decoder' is True"),
        ("default", {"attention_bias": 1}, "'attention_bias' must be true or false, got 1"),
        ("default", {"architectures": ["LlamaForSequenceClassification"]}, "'architectures' is 'LlamaForSequence"),
        ("default", {"partial_rotary_factor": 0.5}, "'partial_rotary_factor' is 0.5, and readers disagree"),
        ("default", {"rope_parameters": {"rope_type": "proportional"}}, "'rope_type' is 'proportional', expected one"),
        ("default", {"rope_parameters": {"rope_type": ["yarn"]}}, "'rope_type' is ['yarn'], expected one of"),
        ("default", {"rope_parameters": 3}, "'rope_parameters' must be an object, got 3"),
        ("default", {"rope_parameters": {"factor": 8.0}}, "'factor' is 8.0, which positions of type 'default' do not"),
        ("default", {"rope_parameters": {"mrope_section": [1, 1]}}, "'mrope_section' is [1, 1]"),
        ("default", {"rope_parameters": {"full_attention": {}}}, "'full_attention' is there, and this model has one"),
        ("default", {"rope_parameters": {**SCALED, "attn_factor": 2}}, "'attn_factor' is 2"),
        ("default", {"rope_parameters": {"rope_type": "yarn"}}, "'factor' must be a number"),
        ("default", {"rope_parameters": {"rope_type": "linear", "factor": 0}}, "'factor' must be a number from 0.001"),
        ("default", {"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                                         "high_freq_factor": 4}}, "'high_freq_factor' must be above"),
        ("longrope", {"rope_parameters": {"rope_type": "longrope", "short_factor": [1], "long_factor": [1]}},
         "'short_factor' must be a list of 4 numbers above 0, got [1]"),
        ("longrope", {"original_max_position_embeddings": 1}, "'original_max_position_embeddings' is 1, expected 2 or"),
        ("default", {"tie_word_embeddings": 1}, "'tie_word_embeddings' must be true or false, got 1"),
        ("default", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "by the older 'rope_scaling'"),
        ("older", {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 900.0}},
         "'rope_theta' is 900.0, and by the older 'rope_scaling' 500.0; leave 'rope_scaling' out"),
        ("mistral", {"layer_types": ["full_attention"] * 3}, "'layer_types' is ['full_attention'"),
        ("mistral", {"attention_bias": True}, "'attention_bias' is True, which is not known here; Mistral has no"),
        ("qwen2", {"layer_types": ["sliding_attention"] * 3}, "no 'sliding_window' is in use"),
        ("qwen2", {"layer_types": ["full_attention"]}, "'layer_types' must name 3 layers"),
        ("qwen2", {"layer_types": ["linear_attention"] * 3}, "'layer_types' must name 3 layers"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "'attn_logit_softcapping' is 50.0, which is not supported: tr"),
        ("gemma3", {"use_bidirectional_attention": True}, "'use_bidirectional_attention' is True"),
        ("gemma3", {"layer_types": None, "_sliding_window_pattern": 2}, "'_sliding_window_pattern' is 2, of which tra"),
        ("gemma3", {"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2.0, "truncate": False}}},
         "full_attention: 'truncate' is false, of which transformers takes no notice in layers of two types"),
        ("default", {"quantization_config": {"quant_method": "gptq", "bits": 4}},
         "'bits': 4, 'quant_method': 'gptq'}, which is not supported: its weights are quantized; take the model's"),
        ("gemma3", {"hidden_act": "silu"}, "'hidden_act' is 'silu', and 'hidden_activation' 'gelu_pytorch_tanh'"),
        ("gemma3", {"rope_parameters": {"rope_theta": 5.0}}, "'rope_theta' is 5.0, which is not known here"),
        ("gemma3", {"head_dim": 9}, "heads of 9 and 2 of keys do not fit"),
    ],
)  # fmt: skip
def test_fields_that_are_refused(name, changes, words, tmp_path):
    config = CASES[name]
    folder = families.write(tmp_path / "a", {**config, **changes}, families.weights(config))
    with pytest.raises(WeightsError, match=re.escape(words)) as refused:
        pretrained.load(folder, None)
    assert str(refused.value).startswith(str(folder))


@pytest.mark.parametrize(
    "changes",
    [
        {"is_llama_config": True, "rope_interleaved": False, "use_mrope": False, "layer_types": None},
        {"use_cache": True, "torch_dtype": "bfloat16", "transformers_version": "5.23.0", "attention_dropout": 0.1},
        {"architectures": ["LlamaForCausalLM"], "rope_scaling": None, "num_experts": 0, "quantization_config": None},
        {"temperature": 0.6, "top_p": 0.9, "max_length": 4096, "pruned_heads": {}, "is_decoder": False},
        {"rope_theta": 3.0, "rope_parameters": {"rope_theta": 500.0, "rope_type": "default", "type": "default"}},
        {"rope_parameters": {"rope_theta": 500.0}, "head_dim": 8, "partial_rotary_factor": 1.0},
        {"rope_parameters": None, "rope_theta": 500.0, "rope_scaling": {}},
        {"rope_parameters": {"rope_theta": 500.0, "factor": 1.0}},
    ],
)  # fmt: skip
def test_fields_that_change_nothing(changes, tmp_path):
    config = CASES["default"]
    folder = families.write(tmp_path / "a", {**config, **changes}, families.weights(config))
    check(folder, "default")


def test_an_original_length_outside_counts(tmp_path):
    config = json.loads(json.dumps(CASES["yarn"]))
    config["rope_parameters"]["original_max_position_embeddings"] = 200
    config["original_max_position_embeddings"] = 32
    check(families.write(tmp_path / "a", config, families.weights(config)), "yarn")


@pytest.mark.parametrize(
    "name, metadata, words",
    [
        ("default", {"expert_count": 8}, "'llama.expert_count' is 8, which is not known here"),
        ("default", {"attention.clamp_kqv": 2.0}, "'llama.attention.clamp_kqv' is 2.0"),
        ("default", {"rope.scaling.alpha": 2.0}, "'llama.rope.scaling.alpha' is 2.0"),
        ("default", {"logit_scale": 0.5}, "'llama.logit_scale' is 0.5"),
        ("default", {"context_length": None}, "'llama.context_length' must be a number"),
        ("default", {"attention.layer_norm_rms_epsilon": None}, "rms_epsilon' must be a number from 0 to 1, got None"),
        ("default", {"rope.scaling.type": "dynamic"}, "'llama.rope.scaling.type' is 'dynamic'"),
        ("default", {"rope.scaling.type": "longrope"}, "'rope_factors_short.weight' is missing"),
        ("default", {"rope.dimension_count": 10}, "'llama.rope.dimension_count' is 10, expected an even number"),
        ("default", {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.yarn_attn_factor": 1.5},
         "'llama.rope.scaling.yarn_attn_factor' is 1.5, and llama.cpp takes 1.13863"),
        ("default", {"attention.head_count_kv": [2, 1, 2]}, "is [2, 1, 2], expected the same in all layers"),
        ("default", {"attention.value_length": 4}, "'llama.attention.value_length' differs from a key's 8"),
        ("qwen2", {"attention.sliding_window": 16}, "of which llama.cpp takes no notice in such a model; give --"),
        ("mistral", {"attention.sliding_window": 16}, "'llama.attention.sliding_window' is 16, of which llama.cpp"),
        ("gemma3-older", {"attention.sliding_window": 16, "rope.scaling.type": "yarn", "rope.scaling.factor": 8.0},
         "'gemma3.rope.scaling.type' is 'yarn', expected none or linear"),
        ("gemma3-older", {"attn_logit_softcapping": 50.0}, "'gemma3.attn_logit_softcapping' is 50.0"),
        ("gemma3-older", {"attention.sliding_window": 16, "attention.sliding_window_pattern": [True]},
         "'gemma3.attention.sliding_window_pattern' must be a number, or true or false for each of 3 layers"),
    ],
)  # fmt: skip
def test_keys_that_are_refused(name, metadata, words, tmp_path):
    config = CASES[name]
    path = families.write_gguf(tmp_path / "a.gguf", config, families.weights(config), metadata)
    with pytest.raises(WeightsError, match=re.escape(words)):
        pretrained.load(path, None)


@pytest.mark.parametrize("layers, scale", [(48, None), (62, 168**-0.5)])
def test_scores_of_the_largest_gemma(layers, scale):
    """llama.cpp tells it by its layers: the metadata has no field for it."""
    metadata = {
        "general.architecture": "gemma3", "gemma3.embedding_length": 5376, "gemma3.block_count": layers,
        "gemma3.feed_forward_length": 21504, "gemma3.attention.head_count": 32, "gemma3.attention.head_count_kv": 16,
        "gemma3.attention.key_length": 128, "gemma3.attention.value_length": 128, "gemma3.context_length": 131072,
        "gemma3.attention.layer_norm_rms_epsilon": 1e-6, "gemma3.attention.sliding_window": 1024,
        "gemma3.rope.freq_base": 1e6, "gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0,
        "tokenizer.ggml.tokens": ["a"],
    }  # fmt: skip
    config = of_metadata.read("a.gguf", metadata, None, {}, frozenset())
    assert config.attention_scale == scale and config.context == 2048
    assert [config.window_of(i) for i in range(6)] == [1024] * 5 + [None]
    slow, fast = config.rope_of(5).frequencies, config.rope_of(0).frequencies
    np.testing.assert_allclose([slow[32], fast[32]], [1e6**-0.5 / 8, 1e4**-0.5])


def test_an_adapter_is_no_model(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_type("adapter")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(WeightsError, match="'general.type' is 'adapter', expected 'model'"):
        pretrained.load(tmp_path / "a.gguf", None)


def test_an_array_that_is_longer_than_the_file(tmp_path):
    """The package's reader would loop over it."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + struct.pack("<Q1sI", 1, b"a", 9)
    for kind, length in ((8, 1 << 22), (4, 1 << 22), (4, 1 << 60), (9, 1)):
        (tmp_path / "a.gguf").write_bytes(head + struct.pack("<IQ", kind, length) + bytes(64))
        with pytest.raises(WeightsError, match="is damaged"):
            Gguf(tmp_path / "a.gguf")
