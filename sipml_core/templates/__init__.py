"""Files to start from: an experiment, a plugin with its tests.

In: a name. Out: files.
Imports `plugin` and what is below it.
"""

from sipml_core.templates.scaffold import write_experiment, write_plugin

__all__ = ["write_experiment", "write_plugin"]
