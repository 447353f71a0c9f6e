"""``python -m sipml_core``"""

from sipml_core.cli import main

main(prog_name="python -m sipml_core")
