"""``python -m sipml_core``"""

from sipml_core.cli.main import main

main(prog_name="python -m sipml_core")
