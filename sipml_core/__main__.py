"""``python -m sipml_core``, and the command ``sipml``."""

import sys


def start(name: str = "sipml") -> None:
    """Run the command line; an interrupt before it answers for itself is one line, too."""
    try:
        from sipml_core.cli.main import main

        main(prog_name=name)
    except KeyboardInterrupt:
        print("sipml: interrupted", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    start("python -m sipml_core")
