"""``python -m sipml_core``, and the command ``sipml``."""

import gc
import os
import sys

#: New objects after which the collector looks for cycles (Python: 700). Nearly all that a command makes it
#: keeps: a small run makes 107 000 objects, and looking at 50 000 of them takes 40 ms.
NEW_OBJECTS = 200_000


def start(name: str = "sipml") -> None:
    """Run the command line; an interrupt before it answers for itself is one line, too."""
    gc.set_threshold(NEW_OBJECTS)
    # Matrices are small here, and a second thread of numpy's BLAS only waits for work, 30 ms of a processor.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from sipml_core.cli.main import main

        main(prog_name=name)
    except KeyboardInterrupt:
        print("sipml: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        gc.freeze()  # what is left ends with the process: Python need not look for cycles in it


if __name__ == "__main__":
    start("python -m sipml_core")
