"""Small graphs of every model, for laws that hold for each op of any of them."""

import json

import pytest

from sipml_core.workloads import ConfiguredModel, Gpt, ResNet50, Transformer

#: A configuration of every known family, small enough to write its counts down.
COMMON = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "max_position_embeddings": 16,
}
SMALL_CONFIGURATIONS = {
    "llama": {"model_type": "llama", **COMMON},
    "mixtral": {"model_type": "mixtral", **COMMON, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        **COMMON,
        "head_dim": 10,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 12,
        "decoder_sparse_step": 2,
    },
    "deepseek_v3": {
        "model_type": "deepseek_v3",
        **COMMON,
        "q_lora_rank": 12,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 4,
        "v_head_dim": 6,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 12,
        "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 1,
    },
    "gpt_oss": {
        "model_type": "gpt_oss",
        **COMMON,
        "head_dim": 10,
        "attention_bias": True,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 4,
    },
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 16,
        "vocab_size": 50,
        "resid_pdrop": 0.1,
    },
    "bert": {"model_type": "bert", **COMMON, "type_vocab_size": 2, "hidden_dropout_prob": 0.1},
    "vit": {"model_type": "vit", **COMMON, "image_size": 16, "patch_size": 8, "num_labels": 10},
}


SMALL = {
    "resnet50": ResNet50(ResNet50.Options(image=64, classes=10)),
    "transformer": Transformer(
        Transformer.Options(
            layers=2,
            hidden=16,
            feed_forward=64,
            heads=4,
            source_sequence=12,
            target_sequence=8,
            vocabulary=50,
        )
    ),
    "gpt": Gpt(Gpt.Options(layers=2, hidden=16, heads=4, sequence=8, vocabulary=50)),
}


@pytest.fixture(scope="session")
def configured(tmp_path_factory):
    """Make the small model of a family, with some keys changed (None: left out) and some options."""

    def make(family, changed=None, **options):
        document = {**SMALL_CONFIGURATIONS[family], **(changed or {})}
        path = tmp_path_factory.mktemp(family) / "config.json"
        path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
        return ConfiguredModel(ConfiguredModel.Options(file=path, **options))

    return make


@pytest.fixture(scope="session", params=[*SMALL, *SMALL_CONFIGURATIONS, "llama, plain", "deepseek_v3, plain"])
def graph(request, configured):
    """Each model in turn, 6 samples."""
    name, _, plain = request.param.partition(", ")
    model = SMALL.get(name) or configured(name, attention=plain or "fused")
    return model.graph(6, "mixed")


@pytest.fixture(scope="session")
def gpt():
    """A GPT of two layers, 6 samples of 8 tokens, hidden 16, 4 heads."""
    return SMALL["gpt"].graph(6, "mixed")
