"""Small graphs of every model, for laws that hold for each op of any of them."""

import pytest

from sipml_core.workloads import Gpt, ResNet50, Transformer

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


@pytest.fixture(scope="session", params=SMALL)
def graph(request):
    """Each model in turn, 6 samples."""
    return SMALL[request.param].graph(6, "mixed")


@pytest.fixture(scope="session")
def gpt():
    """A GPT of two layers, 6 samples of 8 tokens, hidden 16, 4 heads."""
    return SMALL["gpt"].graph(6, "mixed")
