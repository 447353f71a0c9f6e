"""Files to start from: an experiment, a plugin with its tests.

In: a kind and a name. Out: files.
Imports `plugin` and what is below it.
"""

from sipml_core.templates.scaffold import KINDS, write_experiment, write_plugin

__all__ = ["KINDS", "write_experiment", "write_plugin"]
