"""The suite that any stranger's topology passes."""

from sipml_elect_flat import ElectFlat

from sipml_core.testing import TopologyConformance


class TestElectFlat(TopologyConformance):
    topology = ElectFlat


class TestElectFlatBound(TopologyConformance):
    topology = ElectFlat
    options = {"sharing": "bound"}
