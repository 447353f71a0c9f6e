"""Steps to accuracy: measured points, the law between and beyond them, anchors, a user's table."""

import numpy as np
import pytest

from sipml_core.errors import ConfigError
from sipml_core.workloads import SIZED_WORKLOADS, Gpt, Megatron, ResNet50, Transformer
from sipml_core.workloads.convergence import MEASURED, load_curve, measured_curves

IMAGES = 1_281_167


@pytest.mark.parametrize(
    ("model", "e0", "critical_batch", "max_error"),
    [
        ("resnet50", 34.6 * IMAGES, 46.9e3, 0.06),
        ("bert_large", 2.32e6, 12.7e3, 0.13),
        ("gpt3_175b", 1.049e9 / 2048, 16.1e3, 0.042),
        ("llama31_405b", 274.8e3, 5918, 0.018),
    ],
)
def test_the_law_fits_what_was_measured(model, e0, critical_batch, max_error):
    """E0, Bc and the largest error of E0 (1 + B / Bc), as the facts of the project state them."""
    curve = measured_curves()[model]
    intercept, rise = curve.law
    assert intercept == pytest.approx(e0, rel=2e-3)
    assert intercept / rise == pytest.approx(critical_batch, rel=3e-3)
    error = np.abs((intercept + rise * curve.batches) / curve.samples - 1).max()
    assert error == pytest.approx(max_error, abs=0.006)


def test_names_of_measured_models_are_those_of_the_table():
    """What the option's documentation lists is what the file holds."""
    assert tuple(measured_curves()) == MEASURED


def test_a_measured_batch_gives_the_measured_steps():
    """ResNet-50 at 8192: 42 epochs of 1 281 167 images."""
    found = ResNet50(ResNet50.Options()).convergence(8192)
    assert found.steps == pytest.approx(42 * IMAGES / 8192)
    assert not found.extrapolated
    assert "mlcommons" in found.source


def test_between_measured_batches_samples_are_interpolated():
    """Half way from 4096 (40 epochs) to 8192 (42 epochs): 41 epochs."""
    found = ResNet50(ResNet50.Options()).convergence(6144)
    assert found.steps == pytest.approx(41 * IMAGES / 6144)
    assert not found.extrapolated


@pytest.mark.parametrize("batch", [256, 100_000])
def test_outside_the_measured_range_the_law_is_used_and_said(batch):
    """34.58 epochs (1 + B / 46 896)."""
    found = ResNet50(ResNet50.Options()).convergence(batch)
    assert found.extrapolated
    assert found.steps == pytest.approx(34.578 * (1 + batch / 46896) * IMAGES / batch, rel=1e-3)


@pytest.mark.parametrize("model", MEASURED)
def test_a_larger_batch_never_needs_more_steps(model):
    """Within the measured range steps fall as the batch grows (samples rise slower than it)."""
    curve = measured_curves()[model]
    batches = np.linspace(curve.batches[0], curve.batches[-1], 200).astype(int)
    steps = [curve.at(int(batch)).steps for batch in np.unique(batches)]
    assert np.all(np.diff(steps) < 0)


@pytest.mark.parametrize(
    ("workload", "batch", "steps"),
    [(ResNet50, 8192, 8192), (Transformer, 1024, 16384), (Megatron, 1024, 240_000), (Gpt, 1024, 240_000)],
)
def test_the_papers_anchors(workload, batch, steps):
    """The one point the paper (or its scripts) gives is met exactly; all others are extrapolated."""
    model = workload(workload.Options(curve="paper"))
    assert model.convergence(batch).steps == pytest.approx(steps)
    assert not model.convergence(batch).extrapolated
    assert model.convergence(2 * batch).extrapolated


def test_the_transformer_takes_berts_shape_and_says_so():
    """BERT: 2 604 901.6 samples at 1024 and 2 774 463.7 at 2048, by interpolation; half the steps times
    their ratio."""
    found = Transformer(Transformer.Options()).convergence(2048)
    assert found.steps == pytest.approx(16384 / 2 * 2774463.73 / 2604901.6, rel=1e-6)
    assert "bert_large" in found.source
    assert "16384 steps at batch 1024" in found.source


def test_gpt3s_tokens_are_counted_as_sequences_and_called_relative():
    """1 182 793 728 tokens at 2048 are 577 536 sequences, 282 steps: a run from a checkpoint."""
    gpt3 = Gpt(Gpt.Options(layers=96, hidden=12288, heads=96, sequence=2048, curve="gpt3_175b"))
    found = gpt3.convergence(2048)
    assert found.steps == pytest.approx(282.0)
    assert "checkpoint" in found.source


@pytest.mark.parametrize(
    ("workload", "curve"), [(Gpt, "gpt3_175b"), (Megatron, "gpt3_175b"), (ResNet50, "bert_large")]
)
def test_a_measured_curve_is_never_applied_to_another_model(workload, curve):
    """GPT-2 medium is no GPT-3; by default it has no curve at all."""
    with pytest.raises(ConfigError, match=f"curve: '{curve}' was measured for another model"):
        workload(workload.Options(curve=curve))
    assert Gpt(Gpt.Options()).convergence(512) is None


def test_a_users_table(tmp_path):
    """Interpolated in samples: 100 x 1000 and 300 x 500 give 125 000 samples at 200; beyond, the line."""
    path = tmp_path / "mine.csv"
    path.write_text("steps,global_batch,note\n500,300,b\n1000,100,a\n")
    model = ResNet50(ResNet50.Options(curve=str(path)))
    assert model.convergence(100).steps == pytest.approx(1000)
    assert model.convergence(200).steps == pytest.approx(125_000 / 200)
    beyond = model.convergence(500)
    assert beyond.extrapolated
    assert beyond.steps == pytest.approx((75_000 + 250 * 500) / 500)


def test_one_row_means_perfect_scaling(tmp_path):
    """A single point says nothing about the shape: samples stay what they are."""
    path = tmp_path / "one.csv"
    path.write_text("global_batch,steps\n100,1000\n")
    found = load_curve(str(path), measured="resnet50", anchor=(1, 1.0)).at(200)
    assert found.steps == pytest.approx(500)
    assert found.extrapolated


@pytest.mark.parametrize(
    ("rows", "batch", "steps"),
    [("100,1000\n200,450\n", 400, 95_000 / 400), ("100,1000\n200,1500\n", 400, 1400)],
)
def test_an_unphysical_line_is_not_extrapolated(tmp_path, rows, batch, steps):
    """Samples that fall with the batch count as constant (mean 95 000); a line through the origin at
    best (least squares of 100 -> 100 000, 200 -> 300 000 gives 1400 steps)."""
    path = tmp_path / "odd.csv"
    path.write_text("global_batch,steps\n" + rows)
    assert load_curve(str(path), measured="resnet50", anchor=(1, 1.0)).at(batch).steps == pytest.approx(steps)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("global_batch\n1\n", "lacks the column 'steps'"),
        ("global_batch,steps\n", "has no rows"),
        ("global_batch,steps\n1,x\n", "line 2: steps must be a positive number, got 'x'"),
        ("global_batch,steps\n1,10\n0,10\n", "line 3: global_batch must be a positive number, got '0'"),
        ("global_batch,steps\n1,inf\n", "line 2: steps must be a positive number, got 'inf'"),
        ("global_batch,steps\n1\n", "line 2: steps must be a positive number, got None"),
        ("global_batch,steps\n1,10\n1,20\n", "line 3: global_batch 1 is given twice"),
    ],
)
def test_a_malformed_table_is_refused_with_the_line(tmp_path, text, message):
    """When the workload is made, not when the run ends."""
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        ResNet50(ResNet50.Options(curve=str(path)))


def test_unknown_curves_and_missing_files_are_refused(tmp_path):
    """The nearest name, and the file that is not there."""
    with pytest.raises(ConfigError, match="no curve 'papr'; did you mean 'paper'"):
        Gpt(Gpt.Options(curve="papr"))
    with pytest.raises(ConfigError, match=r"curve: cannot read .*gone\.csv"):
        Gpt(Gpt.Options(curve=str(tmp_path / "gone.csv")))


@pytest.mark.parametrize("workload", SIZED_WORKLOADS)
def test_a_batch_below_one_is_refused(workload):
    """For every model and curve."""
    with pytest.raises(ConfigError, match="global_batch must be at least 1, got 0"):
        workload(workload.Options()).convergence(0)
