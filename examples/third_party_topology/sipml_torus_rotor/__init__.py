"""A 2-D torus, whose links never change, and a rotor network, whose links always do."""

from sipml_core.plugin import hookimpl
from sipml_torus_rotor.rotor import Rotor, RotorCycle
from sipml_torus_rotor.torus import Torus

#: The plugin API these classes were written for; sipml refuses the plugin if it has another.
SIPML_API = 2


@hookimpl
def sipml_topologies():
    return [Torus, Rotor]


@hookimpl
def sipml_schedulers():
    return [RotorCycle]
