"""``python -m sipml_core``, and the command ``sipml``."""

import gc
import sys

#: New objects after which the collector looks for cycles (Python: 700). Nearly all that a command makes it
#: keeps, and looking at it again and again took a tenth of a short run.
NEW_OBJECTS = 50_000


def start(name: str = "sipml") -> None:
    """Run the command line; an interrupt before it answers for itself is one line, too."""
    gc.set_threshold(NEW_OBJECTS)
    try:
        from sipml_core.cli.main import main

        main(prog_name=name)
    except KeyboardInterrupt:
        print("sipml: interrupted", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    start("python -m sipml_core")
