"""The time of a retune comes out of the emulation."""

import re

import numpy as np
import pytest

from hwsim import (
    HwsimError,
    LinkTiming,
    RetuneBench,
    State,
    TeraPhy,
    hop_between_ghz,
    retune,
    retune_stages,
    retune_time_us,
    retune_trace,
)

AT_ONCE = LinkTiming(control_us=0.0, lock_us=0.0, cdr_us=0.0)


@pytest.mark.parametrize(
    ("hop_ghz", "tau_us", "table_us"),
    [(200, 4, 17.5), (800, 4, 23.1), (1600, 4, 25.8), (200, 5, 21.9), (1600, 5, 32.3)],
)
@pytest.mark.parametrize("sign", [+1, -1])
def test_every_row_of_the_settling_table(hop_ghz, tau_us, table_us, sign):
    """The emulated ring settles within 1 us of the table (tau ln(hop / 2.5 GHz)), heating and cooling."""
    emulated = retune_stages(sign * hop_ghz, tau_us=tau_us).thermal_us
    assert abs(float(emulated) - table_us) < 1.0
    assert abs(float(emulated) - tau_us * np.log(hop_ghz / 2.5)) <= 0.1 + 1e-9  # one step


def test_the_papers_25_us_lies_inside():
    """With tau 4-5 us and hops of 200 GHz to 1.6 THz, settling spans 17.5 to 32.3 us around 25 us."""
    shortest = float(retune_stages(200.0, tau_us=4.0).thermal_us)
    longest = float(retune_stages(1600.0, tau_us=5.0).thermal_us)
    assert 17.5 <= shortest < 25.0 < longest <= 32.4
    # A hop of two lines of 200 GHz, every stage included: 1 + 4 ln 160 + 2 + 1 = 24.3 us.
    assert retune_time_us(400.0) == pytest.approx(24.3, abs=0.11)


def test_stages_add_up_to_the_total():
    """Control, lock and CDR take what they are given; what is left is heat."""
    timing = LinkTiming(control_us=3.0, lock_us=1.0, cdr_us=8.7)
    stages = retune_stages([200.0, -800.0], timing=timing)
    assert stages.control_us == pytest.approx(3.0)
    assert stages.lock_us == pytest.approx(1.0)
    assert stages.cdr_us == pytest.approx(8.7)
    assert retune_time_us([200.0, -800.0], timing=timing) == pytest.approx(stages.total_us)
    assert stages.total_us == pytest.approx(12.7 + 4 * np.log([80.0, 320.0]), abs=0.11)


def test_words_pass_once_they_are_aligned():
    """0.5 us after the channel is up unless told otherwise, in whole steps; for a ring that stays nothing."""
    stages = retune_stages([400.0, 0.0])
    assert stages.align_us == pytest.approx([0.5, 0.0])
    # 4 ln 160 = 20.301 takes 20.4 us in steps of 0.1 us: 1 + 20.4 + 2 + 1 us until bits pass, + 0.5 us.
    assert stages.words_us == pytest.approx([24.9, 0.0])
    assert stages.words_us - stages.total_us == pytest.approx(stages.align_us)
    other = retune_stages(-400.0, timing=LinkTiming(align_us=1.25), step_us=0.5)
    assert float(other.align_us) == 1.5
    assert float(retune_trace(400.0).stages.words_us) == pytest.approx(24.9)


def test_a_port_aligns_for_as_long_as_a_retune_says():
    """From the last receiver that comes up to the first word of its macro."""
    port = TeraPhy(macros=1, step_us=0.1)
    port.tune()
    port.advance(40.0)
    up_us = max(event.time_us for event in port.log if event.what == "CDR -> UP")
    (aligned,) = port.log.at("rx 0")
    assert aligned.time_us - up_us == pytest.approx(float(retune_stages(100.0).align_us))


def test_a_ring_that_stays_costs_nothing():
    """Hop 0 is no retune; shapes are kept, and a scalar gives a float."""
    assert retune_time_us(0.0) == 0.0
    assert isinstance(retune_time_us(200), float)
    times = retune_time_us(np.array([[0.0, 200.0], [200.0, 0.0]]))
    assert times.shape == (2, 2)
    assert times[0, 0] == times[1, 1] == 0.0
    assert times[0, 1] == times[1, 0] > 20.0
    assert retune_time_us([]).shape == (0,)


def test_over_drive_is_shorter_and_asymmetric():
    """Up 1600 from 200 GHz with 2700 to drive with: 4 ln(2500 / 902.5) = 4.08 us; down, heater off:
    4 ln(1800 / 202.5) = 8.74 us."""
    up, down = retune_time_us([1600.0, -1600.0], control="over-drive", timing=AT_ONCE)
    assert up == pytest.approx(4.08, abs=0.11)
    assert down == pytest.approx(8.74, abs=0.11)


def test_longer_hops_and_slower_rings_take_longer():
    """Monotone in the hop and in tau."""
    hops = [100.0, 200.0, 400.0, 800.0, 1600.0]
    for tau_us in (1.0, 4.0, 10.0):
        assert (np.diff(retune_time_us(hops, tau_us=tau_us)) > 0).all()
    assert (
        retune_time_us(800.0, tau_us=1.0)
        < retune_time_us(800.0, tau_us=4.0)
        < retune_time_us(800.0, tau_us=10.0)
    )


def test_equal_hops_are_emulated_once(monkeypatch):
    """A thousand circuits with three different hops: one emulation of three rings; then none."""
    emulated = []
    original = retune._emulate

    def counted(hops, bench, *rest):
        emulated.append(sorted(hops))
        return original(hops, bench, *rest)

    monkeypatch.setattr(retune, "_emulate", counted)
    monkeypatch.setattr(retune, "_cache", {})
    hops = np.resize([200.0, -400.0, 0.0, 600.0], 1000)
    first = retune_time_us(hops)
    assert emulated == [[-400.0, 200.0, 600.0]]
    assert (retune_time_us(hops) == first).all()
    assert len(emulated) == 1
    retune_time_us(hops, tau_us=1.0)  # another ring
    assert len(emulated) == 2


def test_a_calibration_error_needs_the_lock_loop():
    """Open loop with 2 % error never locks after 800 GHz and says so; the loop does."""
    with pytest.raises(HwsimError, match="'pi-lock' removes such an error"):
        retune_time_us(800.0, calibration_error=0.02)
    assert retune_time_us(800.0, calibration_error=0.02, control="pi-lock") > retune_time_us(800.0)


@pytest.mark.parametrize("hop_ghz", [800.0, -800.0, 200.0, -1600.0, 25.0])
@pytest.mark.parametrize("error", [5.0, -0.97])
def test_the_calibration_errors_that_a_refusal_names_are_removed(hop_ghz, error):
    """Both ends of the range; and the lock loop is not praised for what it cannot do."""
    with pytest.raises(HwsimError) as refusal:
        retune_time_us(hop_ghz, calibration_error=error, control="pi-lock")
    assert "such an error" not in str(refusal.value)
    least, most = re.search(r"'pi-lock' removes errors from (\S+) to (\S+)$", str(refusal.value)).groups()
    for end in (float(least), float(most)):
        assert retune_time_us(hop_ghz, calibration_error=end, control="pi-lock") > 0


def test_what_the_lock_loop_sees_sets_the_errors_it_removes():
    """It sees 1 % of the drop: at half the width, 11.45 GHz, times sqrt(99), 113.9 GHz off. An error e leaves
    e / (1 + e) of the shift of 1000 GHz: from -113.9 / 1113.9 = -0.1023 to 113.9 / 886.1 = 0.1285."""
    for control in ("open-loop", "pi-lock"):
        with pytest.raises(HwsimError, match=r"'pi-lock' removes errors from -0\.102 to 0\.128$"):
            retune_time_us(800.0, calibration_error=0.5, control=control)


@pytest.mark.parametrize("bench", [{}, {"tau_us": 1000.0}, {"timing": LinkTiming(lock_us=1e6)}])
@pytest.mark.parametrize("control", ["open-loop", "over-drive", "pi-lock"])
def test_the_steps_that_a_refusal_names_are_taken(bench, control):
    """Both ends of the range, by every law; a little beyond is refused with the same range."""
    with pytest.raises(HwsimError) as refusal:
        retune_time_us(200.0, step_us=1e12, **bench)
    found = re.search(r"step_us must be from (\S+) to (\S+) for", str(refusal.value))
    least, most = map(float, found.groups())
    retune_time_us(200.0, control=control, step_us=most, **bench)
    RetuneBench(control=control, step_us=least, **bench)
    for beyond in (least / 1.001, most * 1.001):
        with pytest.raises(HwsimError, match=re.escape(found.group())):
            RetuneBench(step_us=beyond, **bench)


def test_hops_between_lines_are_signed():
    """From line 0 to line 3 of 200 GHz the frequency rises by 600 GHz, so that heat falls: -600."""
    assert hop_between_ghz([0, 3, 5], [3, 0, 5]) == pytest.approx([-600.0, 600.0, 0.0])
    assert hop_between_ghz(1, 2, grid="cw-wdm-9nm-16x100") == pytest.approx(-100.0)
    with pytest.raises(HwsimError, match="after must be whole numbers of at least 0 and at most 7"):
        hop_between_ghz(0, 8)


def test_trace_shows_the_way():
    """Detuning starts at the hop, is within tolerance at LOCKING, and the channel is up at the total."""
    trace = retune_trace(800.0)
    assert trace.detuning_ghz[0] == pytest.approx(800.0)
    assert trace.temperature_k[0] == pytest.approx(20.0)  # 200 GHz of bias at 10 GHz/K
    first_lock = int(np.argmax(trace.state >= State.LOCKING))
    assert abs(trace.detuning_ghz[first_lock]) <= 2.5 < abs(trace.detuning_ghz[first_lock - 1])
    first_up = int(np.argmax(trace.state == State.UP))
    assert trace.time_us[first_up] == pytest.approx(float(trace.stages.total_us))
    assert retune_time_us(800.0) == pytest.approx(float(trace.stages.total_us))
    assert (np.diff(trace.state) >= 0).all()
    assert (trace.drop <= 0.9).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hop_ghz": np.nan}, "hop_ghz must be finite"),
        ({"hop_ghz": 2600.0}, "hop_ghz must be at most 2500 either way"),
        ({"hop_ghz": 200.0, "tau_us": 0.0}, "RetuneBench.tau_us must be finite and above 0, got 0"),
        ({"hop_ghz": 200.0, "tolerance_ghz": -1.0}, "RetuneBench.tolerance_ghz must be finite and above 0"),
        ({"hop_ghz": 200.0, "control": "pi_lock"}, "did you mean 'pi-lock'"),
        ({"hop_ghz": 200.0, "step_us": np.inf}, "RetuneBench.step_us must be finite"),
        ({"hop_ghz": 200.0, "step_us": 1e-9}, "RetuneBench.step_us must be from 0.00247 to"),
        ({"hop_ghz": 200.0, "calibration_error": 1e9}, "RetuneBench.calibration_error must be .* at most 1e"),
        ({"hop_ghz": 200.0, "tau_us": [4.0, 5.0]}, "RetuneBench.tau_us must be one number"),
        ({"hop_ghz": "far"}, "hop_ghz must be a number, got 'far'"),
    ],
)
def test_bad_requests_are_refused_by_name(arguments, message):
    """One line with the parameter and what is allowed."""
    with pytest.raises(HwsimError, match=message):
        retune_time_us(arguments.pop("hop_ghz"), **arguments)


def test_timing_is_refused_by_name():
    """No negative time."""
    with pytest.raises(HwsimError, match=r"LinkTiming\.cdr_us must be finite and at least 0, got -1"):
        LinkTiming(cdr_us=-1.0)
