"""``python -m hwsim`` as a user meets it."""

import builtins
import subprocess
import sys

import pytest
from click.testing import CliRunner

from hwsim.cli import main


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


def test_help_teaches():
    """Help names the commands, what they are for, and examples that can be typed."""
    for arguments, words in (
        (("--help",), ("settle", "spectrum", "python -m hwsim settle --hop-ghz 800 --tau-us 4")),
        (
            ("settle", "--help"),
            ("tau ln(hop / tolerance)", "Examples:", "--calibration-error", "default: 2.5"),
        ),
        (("spectrum", "--help"), ("cw-wdm-9nm-16x100", "Examples:", "margin")),
    ):
        result = run(*arguments)
        assert result.exit_code == 0
        for word in words:
            assert word in result.output


def test_settle_prints_the_timeline():
    """States in order, and the stages: 1 + 23.1 + 2 + 1 = 27.1 us (4 ln 320 = 23.07)."""
    result = run("settle", "--hop-ghz", "800", "--tau-us", "4")
    assert result.exit_code == 0
    text = result.output
    assert text.index("TUNING") < text.index("LOCKING") < text.index("CDR") < text.index("UP")
    stages = dict(line.split() for line in text.split("[us]\n")[1].splitlines()[:5])
    assert stages == {"control": "1.0", "thermal": "23.1", "lock": "2.0", "cdr": "1.0", "total": "27.1"}
    assert "= 23.07 us" in text


def test_spectrum_prints_the_port():
    """Eight slots on eight lines, all up; 10 log10(0.9) = -0.46 dB at each drop port."""
    result = run("spectrum")
    assert result.exit_code == 0
    rows = [line.split() for line in result.output.splitlines() if line.endswith("UP")]
    assert [row[1] for row in rows] == ["-700", "-500", "-300", "-100", "100", "300", "500", "700"]
    assert {row[4] for row in rows} == {"-0.46"}
    assert "200 Gbps in words" in result.output


@pytest.mark.parametrize(
    ("grid", "lines", "first_ghz", "gbps"),
    [  # the lowest line lies (lines - 1) / 2 spacings below the centre; 25 Gbps for each
        ("9nm-8x200", 8, -700, 200),
        ("9nm-16x100", 16, -750, 400),
        ("18nm-8x400", 8, -1400, 200),
        ("18nm-16x200", 16, -1500, 400),
        ("18nm-32x100", 32, -1550, 800),
        ("36nm-8x800", 8, -2800, 200),
        ("36nm-16x400", 16, -3000, 400),
        ("36nm-32x200", 32, -3100, 800),
    ],
)
def test_spectrum_of_every_grid_without_a_design(grid, lines, first_ghz, gbps):
    """Every line of every grid of the MSA is up, on rings chosen by the grid."""
    result = run("spectrum", "--grid", f"cw-wdm-{grid}")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines() if line.endswith(" UP")]
    assert len(rows) == lines
    assert [rows[0][1], rows[-1][1]] == [str(first_ghz), str(-first_ghz)]
    assert f"{gbps} Gbps in words" in result.output
    assert "all up" in result.output


def test_settle_on_the_rings_of_a_grid():
    """From end to end of 8 x 800 GHz, 7 x 800: 4 ln(5600 / 2.5) = 30.86 us; refused on other heaters."""
    assert "= 30.86 us" in run("settle", "--hop-ghz", "5600", "--grid", "cw-wdm-36nm-8x800").output
    assert "hop_ghz must be at most 2500 either way" in run("settle", "--hop-ghz", "5600").output
    own = run("settle", "--hop-ghz", "5600", "--grid", "cw-wdm-36nm-8x800", "--heater-range-ghz", "6000")
    assert "hop_ghz must be at most 5200 either way" in own.output  # 6000 less the bias of 800


def test_a_design_by_name_is_the_radius_it_stands_for():
    """3 um: c / (4.2 x 18.850 um) = 3787 GHz, by name or by radius."""
    by_name = run("spectrum", "--design", "18nm").output
    assert by_name == run("spectrum", "--radius-um", "3").output
    assert "rings with FSR 3787 GHz" in by_name
    assert by_name != run("spectrum").output


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_figures_are_drawn(tmp_path, suffix):
    """Both commands write what they are asked to write, and the same bytes twice."""
    pytest.importorskip("matplotlib")
    for name, arguments in (("settle", ("settle", "--hop-ghz", "-400")), ("spectrum", ("spectrum",))):
        path = tmp_path / f"{name}.{suffix}"
        result = run(*arguments, "--plot", str(path))
        assert result.exit_code == 0, result.output
        assert path.stat().st_size > 5000
        assert f"drawn in {path}" in result.output
        first = path.read_bytes()
        run(*arguments, "--plot", str(path))
        assert path.read_bytes() == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("settle",), "Missing option '--hop-ghz'"),
        (("settle", "--hop-ghz", "far"), "is not a valid float"),
        (("settle", "--hop-ghz", "nan"), "hop_ghz must be finite, got nan"),
        (("settle", "--hop-ghz", "0"), "hop_ghz must not be 0"),
        (("settle", "--hop-ghz", "9999"), "hop_ghz must be at most 2500 either way"),
        (("settle", "--hop-ghz", "800", "--tau-us", "-1"), "tau_us must be finite and above 0, got -1"),
        (("settle", "--hop-ghz", "800", "--cdr-us", "inf"), "cdr_us must be finite and at least 0, got inf"),
        (("settle", "--hop-ghz", "800", "--control", "hope"), "'hope' is not one of"),
        (("settle", "--hop-ghz", "800", "--calibration-error", "0.02"), "'pi-lock' removes such an error"),
        (("settle", "--hop-ghz", "800", "--plot", "nowhere/x.png"), "plot must be in an existing folder"),
        (("settle", "--hop-ghz", "800", "--plot", "x.doc"), "plot must end in .png, .svg or .pdf"),
        (("spectrum", "--grid", "cw-wdm-18nm-16x200", "--radius-um", "5"), "fsr_ghz must be at least 3200"),
        (("spectrum", "--grid", "cw-wdm-36nm-8x800", "--design", "18nm"), "fsr_ghz must be at least 6400"),
        (("spectrum", "--design", "18nm", "--radius-um", "3"), "design and radius_um exclude each other"),
        (("spectrum", "--design", "27nm"), "'27nm' is not one of '9nm', '18nm', '36nm'"),
        (("spectrum", "--radius-um", "0"), "radius_um must be finite and above 0, got 0"),
        (
            ("spectrum", "--wavelengths", "9"),
            "wavelengths must be a whole number of at least 1 and at most 8",
        ),
        (("spectrum", "--quality", "0"), "quality must be finite and above 0, got 0"),
        (("unknown",), "No such command 'unknown'"),
    ],
)
def test_bad_input_ends_with_2_and_no_traceback(arguments, message):
    """Exit status 2, what is wrong in one line, nothing computed."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
    assert "where the time goes" not in result.output


def test_without_matplotlib_a_plot_is_refused_in_one_line(monkeypatch, tmp_path):
    """The line says what is missing and how to get it."""
    original = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    result = run("settle", "--hop-ghz", "200", "--plot", str(tmp_path / "x.png"))
    assert result.exit_code == 2
    assert "a plot needs matplotlib, which is not installed: pip install 'sipml[plot]'" in result.output


def test_hwsim_stands_alone():
    """Importing and running it loads nothing of the simulator, and no matplotlib."""
    program = (
        "import sys, hwsim, hwsim.cli; hwsim.retune_time_us(200.0); "
        "print([m for m in sys.modules if m.split('.')[0] in ('sipml_core', 'sipml_ring', 'matplotlib')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_module_runs_as_a_program():
    """``python -m hwsim`` is the command the help shows."""
    done = subprocess.run(
        [sys.executable, "-m", "hwsim", "settle", "--hop-ghz", "200"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "thermal" in done.stdout
