"""Today's models: parameters as published, FLOPs and kept bytes by hand, refusals of what is no model."""

import pytest

from sipml_core.errors import ConfigError
from sipml_core.model import Phase, Role
from sipml_core.workloads import LANGUAGE_MODELS, Gpt
from sipml_core.workloads.expertlayers import ROUTER_FLOPS

PRESET = {workload.name: workload for workload in LANGUAGE_MODELS}
#: The published configurations of two models that are no presets (only keys that say a shape).
DEEPSEEK = {
    "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "vocab_size": 129280, "max_position_embeddings": 163840, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
}  # fmt: skip
GPT_OSS = {
    "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088, "max_position_embeddings": 131072,
    "num_local_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128,
}  # fmt: skip


def preset(name, **options):
    return PRESET[name](PRESET[name].Options(**options))


def forward_flops(graph, *kinds):
    return sum(op.flops for op in graph.ops if op.phase is Phase.FORWARD and op.kind in kinds)


def kept_bytes(graph, layer="layer1."):
    """Bytes that the backward pass reads of what the forward ops of one layer, and the layer before, make."""
    written = {o.tensor for op in graph.ops if op.phase is Phase.FORWARD for o in op.writes}
    kept = {
        o.tensor
        for op in graph.ops
        if op.phase is Phase.BACKWARD and op.name.startswith(layer)
        for o in op.reads
        if o.tensor in written
    }
    return sum(graph.tensor[name].size_bytes for name in kept)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama3-8b", 8_030_261_248),  # as Hugging Face counts the published weights
        ("llama3-70b", 70_553_706_496),
        ("llama3-405b", 405_853_388_800),
        ("mixtral-8x7b", 46_702_792_704),
        # 96 (12 h^2 + 13 h) + (50257 + 2048) h + 2 h; 175 billion in Brown et al. 2020, table 2.1
        ("gpt3-175b", 174_604_259_328),
        # 24 (12 h^2 + 13 h) + (30522 + 512 + 2) h + 2 h, and a head of h^2 + 3 h + 30522; 340 M in 1810.04805
        ("bert-large", 335_174_458),
        ("vit-l", 304_326_632),  # torchvision's table of models, vit_l_16
    ],
)
def test_presets_have_the_published_parameters(name, parameters):
    """To the last one."""
    assert preset(name).graph(1, "mixed").parameter_elements == parameters


def test_gpt2_medium_from_its_configuration(configured):
    """354 823 168, as published; the same as the workload `gpt` by default."""
    medium = {"n_embd": 1024, "n_layer": 24, "n_head": 16, "n_positions": 1024, "vocab_size": 50257}
    found = configured("gpt2", medium).graph(1, "mixed").parameter_elements
    assert found == Gpt(Gpt.Options()).graph(1, "mixed").parameter_elements == 354_823_168


def test_deepseek_v3_and_gpt_oss_have_the_published_parameters(configured):
    """671.0e9 without the layer that predicts one token more; 116.8e9."""
    deepseek, oss = configured("deepseek_v3", DEEPSEEK), configured("gpt_oss", GPT_OSS)
    assert deepseek.graph(1, "mixed").parameter_elements == pytest.approx(671.0e9, rel=5e-5)
    assert deepseek.notes == ("of the published model is left out: 1 layer that predicts one token more",)
    assert oss.graph(1, "mixed").parameter_elements == pytest.approx(116.8e9, rel=5e-4)


def test_qwen3_moe_parameters_by_hand(configured):
    """Heads of 10 features, norms of queries and keys, experts in every second layer.

    A layer: queries and output 2 * 32 * 40, keys and values 2 * 32 * 20, norms 2 * 10 + 2 * 32. The first has
    3 * 32 * 48 inner weights, the second a router of 32 * 4 and 4 experts of 3 * 32 * 12.
    """
    layer = 2 * 32 * 40 + 2 * 32 * 20 + 20 + 64
    total = 2 * layer + 3 * 32 * 48 + 32 * 4 + 4 * 3 * 32 * 12 + 2 * 50 * 32 + 32
    assert configured("qwen3_moe").graph(1, "mixed").parameter_elements == total


@pytest.mark.parametrize(
    ("family", "weights", "pair"),
    [
        # weights that a token meets in products, and features of a key and a value over all heads and layers
        ("llama", 2 * (32 * 64 + 32 * 32 + 3 * 32 * 48) + 32 * 50, 2 * 4 * 16),
        ("mixtral", 2 * (32 * 64 + 32 * 32 + 2 * 3 * 32 * 48 + 32 * 4) + 32 * 50, 2 * 4 * 16),
        (
            "qwen3_moe",
            2 * (2 * 32 * 40 + 2 * 32 * 20) + 3 * 32 * 48 + 2 * 3 * 32 * 12 + 32 * 4 + 32 * 50,
            2 * 4 * 20,
        ),
        (
            "deepseek_v3",
            # down and up of queries, of keys and values, output; dense; router, 2 experts, the shared one
            2 * (32 * 12 + 12 * 40 + 32 * 12 + 8 * 4 * 12 + 24 * 32)
            + 3 * 32 * 48
            + (32 * 4 + 3 * 3 * 32 * 12)
            + 32 * 50,
            2 * 4 * 16,
        ),
        (
            "gpt_oss",
            2 * (2 * 32 * 40 + 2 * 32 * 20 + 2 * 3 * 32 * 48 + 32 * 4) + 32 * 50,
            2 * 4 * 20,
        ),
        ("gpt2", 2 * 12 * 32 * 32 + 32 * 50, 2 * 4 * 16),
        ("bert", 2 * (4 * 32 * 32 + 2 * 32 * 48) + 32 * 32 + 32 * 50, 2 * 4 * 16),
    ],
)
def test_flops_of_a_token_by_hand(configured, family, weights, pair):
    """6 for each weight that it meets in a product, and 6 s for each feature of a key and a value."""
    model = configured(family)
    assert model.token_flops.products == 6 * weights
    assert model.token_flops.attention == 6 * 16 * pair
    graph = model.graph(3, "mixed")
    assert forward_flops(graph, "matmul") == 3 * 16 * 2 * weights
    plain = configured(family, attention="plain").graph(3, "mixed")
    assert forward_flops(plain, "attention") == 3 * 16 * 2 * 16 * pair


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b", "bert-large", "gpt3-175b"])
def test_the_graph_does_the_flops_of_the_formula(name):
    """A forward pass is a third of the step, attention counted where it is needed.

    Going back, attention costs 2.5 times its FLOPs forward (Dao 2023).
    """
    model = preset(name)
    graph = model.graph(2, "mixed")
    tokens, flops = 2 * model.sequence, model.token_flops
    assert forward_flops(graph, "matmul") == pytest.approx(tokens * flops.products / 3, rel=1e-12)
    attention = forward_flops(graph, "attention")
    assert attention == pytest.approx(tokens * flops.needed_attention / 3, rel=1e-12)
    back = [op for op in graph.ops if op.phase is Phase.BACKWARD]
    assert sum(op.flops for op in back if op.kind == "attention") == pytest.approx(2.5 * attention, rel=1e-12)


@pytest.mark.parametrize(("layers", "hidden"), [(24, 1024), (96, 12288)])
def test_equation_3_of_megatron(layers, hidden):
    """72 B s L h^2 (1 + s / 6h + V / 12 L h): Narayanan et al. 2021, without their recomputation."""
    gpt = Gpt(Gpt.Options(layers=layers, hidden=hidden, heads=16, sequence=2048, vocabulary=51200))
    formula = 72 * layers * hidden**2 * (1 + 2048 / (6 * hidden) + 51200 / (12 * layers * hidden))
    assert gpt.token_flops.total == pytest.approx(formula, rel=1e-12)
    assert gpt.token_flops.attention == 2 * gpt.token_flops.needed_attention == 12 * layers * 2048 * hidden


def test_active_parameters_of_mixtral():
    """12.9 of 46.7 billion are used for a token: all but 6 of 8 experts (2401.04088, table 1)."""
    model = preset("mixtral-8x7b")
    unused = 32 * 6 * 3 * 4096 * 14336
    active = model.graph(1, "mixed").parameter_elements - unused
    assert active == pytest.approx(12.9e9, rel=2e-3)
    # Of these the lookup, 9 * 4096 norms and as many in all layers are in no product.
    assert model.token_flops.products == 6 * (active - 32000 * 4096 - 65 * 4096)


def test_a_window_leaves_fewer_pairs(configured):
    """16 tokens, of which each attends to 4 on every other layer: 4 * 16 - 8 of 128 pairs."""
    model = configured("gpt_oss")
    assert model.shape.windows == (4, None)
    graph = model.graph(1, "mixed")
    feature_flops = 2 * 4 * 20
    assert graph.op["layer0.attention.core"].flops == (4 * 16 - 8) * feature_flops
    assert graph.op["layer1.attention.core"].flops == 128 * feature_flops


@pytest.mark.parametrize("attention", ["plain", "fused"])
def test_korthikanti_activations_of_a_gpt_layer(configured, attention):
    """s b h (34 + 5 a s / h) bytes with dropout (2205.05198, equation 2).

    Fused attention drops the 5 a s, and keeps a statistic of 4 bytes for each head and token."""
    s, b, h, a = 16, 3, 32, 4
    graph = configured("gpt2", attention=attention).graph(b, "mixed")
    pairs = 5 * a * s * s * b if attention == "plain" else 4 * a * s * b
    assert kept_bytes(graph) == s * b * h * 34 + pairs


def test_activations_of_a_llama_layer(configured):
    """s b (12 h + 4 h_kv + 6 f) bytes with fused attention, and its statistic of 4 bytes a head and token."""
    s, b, h, h_kv, f, a = 16, 3, 32, 16, 48, 4
    graph = configured("llama").graph(b, "mixed")
    assert kept_bytes(graph) == s * b * (12 * h + 4 * h_kv + 6 * f) + 4 * a * s * b


def test_activations_of_a_layer_of_experts(configured):
    """Of the 6 f of a Llama layer K experts each keep their own; their inputs and outputs are K rows of 2 h
    each; the router keeps its input (counted), its logits and weights, and 8 bytes for each choice."""
    s, b, h, h_kv, f, a, experts, k = 16, 3, 32, 16, 48, 4, 4, 2
    graph = configured("mixtral").graph(b, "mixed")
    attention = s * b * (12 * h + 4 * h_kv) + 4 * a * s * b
    rows = s * b * k * (2 * h + 6 * f + 2 * h)
    assert kept_bytes(graph) == attention + rows + s * b * (2 * experts + 2 * k + 8 * k)


def test_a_capacity_factor_makes_rows_for_the_room(configured):
    """Room for 1.5 times the mean of 2 experts a token: 3 rows, dropped or filled up."""
    balanced, roomy = configured("mixtral"), configured("mixtral", capacity_factor=1.5)
    name = "layer0.moe.experts.up"
    flops = [model.graph(1, "mixed").op[name].flops for model in (balanced, roomy)]
    assert flops[1] == 1.5 * flops[0] == 2 * 16 * 3 * 32 * 2 * 48
    assert roomy.token_flops == balanced.token_flops


def test_the_router_looks_at_every_expert(configured):
    """A choice costs for each logit, whatever is chosen."""
    graph = configured("mixtral").graph(1, "mixed")
    assert graph.op["layer0.moe.router.top"].flops == ROUTER_FLOPS * 16 * 4


def test_the_usual_sequence_is_what_the_model_sees(configured):
    """16 of the small one; never more than 8192 of a model that sees 32 768."""
    assert configured("llama").sample_tokens == 16
    assert preset("mixtral-8x7b").sample_tokens == 8192
    assert preset("vit-l").sample_tokens is None


def test_tied_models_have_one_vocabulary_matrix(configured):
    """The head's own matrix is the difference: 50 x 32."""
    untied, tied = (
        configured("llama", {"tie_word_embeddings": tied}).graph(1, "mixed") for tied in (False, True)
    )
    assert untied.parameter_elements - tied.parameter_elements == 50 * 32
    assert "head.weight" in {t.name for t in untied.tensors if t.role is Role.PARAMETER}


@pytest.mark.parametrize(
    ("family", "changed", "message"),
    [
        ("llama", {"model_type": "lama"}, r"no model_type 'lama'; did you mean 'llama'\? known: bert"),
        ("llama", {"model_type": None}, "is JSON but no model configuration: it has no key 'model_type'"),
        ("llama", {"vocab_size": None}, "has no key 'vocab_size', which model_type 'llama' needs"),
        (
            "llama",
            {"num_key_value_heads": 3},
            "num_key_value_heads must divide the 4 heads, got 3; nearest: 2",
        ),
        (
            "llama",
            {"num_attention_heads": 5},
            "num_key_value_heads must divide the 5 heads, got 2; nearest: 1",
        ),
        (
            "llama",
            {"num_attention_heads": 6},
            "heads must divide the 32 features where there is no head_dim, got 6; nearest: 4",
        ),
        ("llama", {"hidden_size": "32"}, "hidden_size must be an integer from 1 to 1048576, got '32'"),
        ("llama", {"num_hidden_layers": 0}, "num_hidden_layers must be an integer from 1 to 1000, got 0"),
        ("llama", {"attention_bias": 1}, "attention_bias must be true or false, got 1"),
        ("mixtral", {"num_experts_per_tok": 5}, "num_experts_per_tok must be at most the 4 experts, got 5"),
        ("gpt_oss", {"layer_types": ["full_attention"]}, "layer_types must name 2 layers, got 1"),
        ("vit", {"patch_size": 5}, "patch_size must divide the 16 pixels of an image, got 5; nearest: 4"),
        ("llama", {"hidden_act": "relu"}, "no hidden_act 'relu'; did you mean 'silu'"),
    ],
)
def test_what_is_no_configuration_is_refused(configured, family, changed, message):
    """One line: the file, the key, what is allowed."""
    with pytest.raises(ConfigError, match=message) as refused:
        configured(family, changed)
    assert "\n" not in str(refused.value)
    assert "config.json" in str(refused.value)


def test_a_file_that_is_no_json_is_refused(tmp_path):
    """With what is wrong, and where."""
    path = tmp_path / "config.json"
    for text, message in [("{", "is no JSON: "), ("[1, 2]", "is JSON but no model configuration")]:
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            PRESET["hf"](PRESET["hf"].Options(file=path))
    with pytest.raises(ConfigError, match="file: cannot read"):
        PRESET["hf"](PRESET["hf"].Options(file=tmp_path / "gone.json"))


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("llama", {"sequence": 17}, "sequence must be at most the 16 tokens that the model can see, got 17"),
        ("llama", {"capacity_factor": 1.0}, "capacity_factor must be left out: this model has no experts"),
        (
            "mixtral",
            {"capacity_factor": 1.2},
            r"capacity_factor times the 2 experts of a token must be whole, got 1\.2; nearest: 1 or 1\.5",
        ),
        ("llama", {"curve": "paper"}, "curve: the paper has no point of 'hf'"),
        ("llama", {"curve": "llama31_8b"}, "curve: 'llama31_8b' was measured for another model"),
    ],
)
def test_options_that_do_not_fit_the_model_are_refused(configured, family, options, message):
    """Key, rule, value, and the nearest that would do."""
    with pytest.raises(ConfigError, match=message):
        configured(family, **options)


def test_measured_curves_are_offered_to_their_own_model():
    """Llama 3 405B needs 274.8e3 (1 + B / 5918) sequences, within the 1.8 % of the measurements."""
    found = preset("llama3-405b", curve="llama31_405b").convergence(1728)
    assert found.steps == pytest.approx(274.8e3 * (1 + 1728 / 5918) / 1728, rel=0.018)
    assert not found.extrapolated
