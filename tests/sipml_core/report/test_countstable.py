"""What a workload is made of: each column shows the count it says."""

from sipml_core.report.countstable import counts_table
from sipml_core.workloads import Gpt

GPT = Gpt(Gpt.Options(layers=2, hidden=16, heads=4, sequence=8, vocabulary=50))


def test_counts_of_a_small_gpt(columns):
    """Both layers in one line: 16 x 64 weights with biases four times, 8 x 64 or 8 x 16 values of 2 bytes."""
    table = columns(counts_table("small", GPT.graph(1, "mixed")))
    line = table["ops"].index("layer*.mlp.fc*")
    assert table["like it"][line] == "4"
    assert table["kind"][line] == "matmul"
    assert table["parameters"][line] == "4 256"  # 2 (16 * 64 + 64) + 2 (64 * 16 + 16)
    assert table["forward FLOPs"][line] == f"{4 * 2 * 8 * 16 * 64:.4g}"
    assert table["makes"][line] == "2.56 kB"


def test_the_last_line_has_the_sum_and_a_tied_matrix_counts_once(columns):
    graph = GPT.graph(1, "mixed")
    table = columns(counts_table("small", graph))
    assert table["ops"][-1] == "in all"
    assert table["parameters"][-1].replace(" ", "") == str(graph.parameter_elements)
    counted = [int(cell.replace(" ", "")) for cell in table["parameters"]]
    assert sum(counted[:-1]) == counted[-1]
    assert table["parameters"][table["ops"].index("loss.logits")] == "0"
