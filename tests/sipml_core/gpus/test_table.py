"""A GPU known by measured times."""

import pytest

from sipml_core.errors import ConfigError
from sipml_core.gpus import TableGpu
from sipml_core.model.opgraph import Phase
from sipml_core.model.opwork import OpWork

TABLE = "op,batch,time_us\nconv1,4,40\nconv1,8,60\nconv1.optimizer,4,9\n"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "profile.csv"
    path.write_text(TABLE)
    return TableGpu(TableGpu.Options(file=str(path), memory="16 GB"))


def work(samples, *, op="conv1", fraction=1.0, phase=Phase.FORWARD):
    return OpWork(
        op=op,
        kind="conv",
        phase=phase,
        precision="fp32",
        flops=1.0,
        memory_bytes=1.0,
        output_elements=1.0,
        samples=samples,
        fraction=fraction,
    )


@pytest.mark.parametrize(("samples", "time_us"), [(4, 40), (8, 60), (6, 50), (2, 20), (16, 120)])
def test_time_is_interpolated_along_the_batch(table, samples, time_us):
    """Between 4 and 8 linearly; beyond, in proportion to the nearest measurement."""
    assert table.op_time_us(work(samples)) == pytest.approx(time_us)


@pytest.mark.parametrize(("samples", "factor"), [(4, 1), (6, 1), (8, 1), (2, 2), (2000, 250)])
def test_how_far_a_batch_lies_outside_what_was_measured_is_known(table, samples, factor):
    """4 to 8 were measured: 2000 is 250 times beyond; an optimizer does not depend on the batch."""
    assert table.extrapolation(work(samples)) == factor
    assert table.extrapolation(work(samples, op="conv1.optimizer", phase=Phase.OPTIMIZER)) == 1


def test_other_splits_divide_linearly(table):
    """A quarter of the columns takes a quarter of the time (paper, section 3.2, i)."""
    assert table.op_time_us(work(8, fraction=0.25)) == pytest.approx(15)


def test_the_optimizer_does_not_depend_on_the_batch(table):
    """9 us whatever the batch."""
    optimizer = work(64, op="conv1.optimizer", phase=Phase.OPTIMIZER)
    assert table.op_time_us(optimizer) == pytest.approx(9)


def test_memory(table):
    """As configured."""
    assert table.memory_bytes == 16e9


def test_an_op_without_rows_is_refused_with_the_nearest(table):
    """Rather than a time that nobody measured."""
    with pytest.raises(ConfigError, match=r"has no rows for op 'conv2'; nearest: 'conv1'"):
        table.op_time_us(work(4, op="conv2"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("op,batch\nconv1,1\n", "lacks the column 'time_us'"),
        ("op,batch,time_us\n", "has no rows"),
        ("op,batch,time_us\nconv1,1,-3\n", "line 2: time_us must be a positive number, got '-3'"),
        ("op,batch,time_us\nconv1,1,1e-320\n", r"line 2: time_us must be from 1e-12 to 1e\+30, got '1e-320'"),
        ("op,batch,time_us,batch\nconv1,1,3,2\n", "has twice the column 'batch'"),
        ("op,batch,time_us\nconv1,1," + "x" * 3000, "line 2: time_us must be a positive number, got 'xxx"),
        ("op,batch,time_us\nconv1,1,3\nconv1,1,4\n", "line 3: op 'conv1' has batch 1 twice"),
    ],
)
def test_a_malformed_table_is_refused_with_the_line(tmp_path, text, message):
    """When the GPU is made."""
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        TableGpu(TableGpu.Options(file=str(path)))


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path):
    """One line, with the path."""
    path = tmp_path / "binary.csv"
    path.write_bytes(b"\xff\xfe\x00op")
    for name in (path, tmp_path / "gone.csv"):
        with pytest.raises(ConfigError, match=r"gpu\.file: cannot read"):
            TableGpu(TableGpu.Options(file=str(name)))
