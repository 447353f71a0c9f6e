"""How long does a micro-ring take to change its wavelength, and where does the time go?

    python examples/hwsim_retune.py

Prints the stages of retunes over a 9 nm comb of eight 200 GHz lines, what faster heaters and cleverer control
buy, and the log of a port whose laser loses a line.
"""

import numpy as np

from hwsim import ControlLaw, MissingLine, TeraPhy, hop_between_ghz, retune_stages, retune_time_us


def stages_of_hops():
    """Stages of the hops between the lines of the comb, plain open-loop steps with tau = 4 us."""
    print("hop GHz   control  thermal  lock   CDR   total [us]")
    hops = [200.0, 400.0, 800.0, 1400.0, -1400.0]
    stages = retune_stages(hops)
    for k, hop in enumerate(hops):
        print(
            f"{hop:+7.0f}  {stages.control_us[k]:8.1f} {stages.thermal_us[k]:8.1f} {stages.lock_us[k]:5.1f} "
            f"{stages.cdr_us[k]:5.1f} {stages.total_us[k]:7.1f}"
        )


def heaters_and_control():
    """Mean over all pairs of lines, for three heaters and two ways to drive them."""
    lines = np.arange(8)
    before, after = (x[~np.eye(8, dtype=bool)] for x in np.meshgrid(lines, lines, indexing="ij"))
    hops = hop_between_ghz(before, after)
    print("\nmean over all pairs of lines [us]")
    print("tau us   open-loop   over-drive")
    for tau_us in (1.0, 4.0, 10.0):
        means = [
            retune_time_us(hops, tau_us=tau_us, control=law).mean() for law in ("open-loop", "over-drive")
        ]
        print(f"{tau_us:6.0f} {means[0]:11.1f} {means[1]:12.1f}")


def a_line_goes_out():
    """One macro comes up, then its laser loses line 3."""
    port = TeraPhy(macros=1, control=ControlLaw(law="pi-lock"))
    port.tune()
    port.advance(40.0)
    port.inject(MissingLine(line=3))
    port.advance(10.0)
    print("\nreceiver 0.3 and its macro")
    for event in port.log:
        if event.where in ("rx 0.3", "rx 0", "port"):
            print(event)
    print(f"the port still carries {port.capacity_gbps:g} of 200 Gbps")


if __name__ == "__main__":
    stages_of_hops()
    heaters_and_control()
    a_line_goes_out()
