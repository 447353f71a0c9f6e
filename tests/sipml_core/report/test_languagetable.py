"""The table of a language model: each column shows the field it says."""

from sipml_core.report.languagetable import language_table

CELLS = {
    "interconnect": "net",
    "tokens/s/GPU": "2146",
    "TFLOP/s/GPU": "110.4",
    "MFU": "35.4 %",
    "MFU needed": "33.2 %",
    "HFU": "47.1 %",
    "tensor": "421 us",
    "pipeline": "44.5 us",
    "expert": "93.5 us",
    "context": "17.5 us",
    "gradient": "35.9 us",
    "parameters, gradients,\noptimizer, activations": "2.1, 2.2, 1.6, 6.5 GB",
    "days": "25.3",
    "GPU-hours": "38 830",
}


def test_every_column_shows_the_field_it_says(fakes, columns):
    table = language_table([fakes.language_result()], width=200)
    assert columns(table) == {heading: [cell] for heading, cell in CELLS.items()}
    # 25.3 days of 5.5 million tokens a second.
    assert table.title.plain.endswith("cost of 12 trillion tokens")


def test_kinds_that_nobody_waits_for_and_rows_that_did_not_run_are_left_out(fakes, columns):
    rows = [
        fakes.language_result(expert_exposed_us=0.0, context_exposed_us=None),
        fakes.case_result(topology="unfit", status="infeasible"),
    ]
    found = columns(language_table(rows, width=200))
    assert found["interconnect"] == ["net"]
    assert "expert" not in found
    assert "context" not in found


def test_other_models_have_no_such_table(fakes):
    assert language_table([fakes.case_result()], width=200) is None


def test_a_narrow_table_keeps_the_utilisation(fakes, columns):
    found = columns(language_table([fakes.language_result()], width=80))
    assert {"interconnect", "tokens/s/GPU", "MFU"} <= set(found)
    assert "days" not in found


def test_what_a_narrow_table_leaves_out_is_named(fakes):
    """Each column is shown or named; a table that has all of them says nothing."""
    assert language_table([fakes.language_result(bubble=0.0)], width=200).caption is None
    table = language_table([fakes.language_result(bubble=0.0)], width=130)
    shown = [str(column.header) for column in table.columns]
    missing = [heading.replace("\n", " ") for heading in CELLS if heading not in shown]
    assert 0 < len(missing) < 5
    where = "in summary.csv, and here in a wider terminal"
    assert table.caption.plain == f"{len(missing)} columns left out ({', '.join(missing)}): {where}"


def test_idle_time_stands_beside_the_bubble(fakes):
    """30 us of 200 us, where equal stages and a free network would leave 3 / 19."""
    row = fakes.language_result(bubble=3 / 19, idle_us=30.0, iteration_us=200.0)
    said = "idle part of an iteration: net 15.0 %; the bubble of the pipeline, (p - 1) / (m + p - 1): 15.8 %"
    assert language_table([row], width=200).caption.plain == said
