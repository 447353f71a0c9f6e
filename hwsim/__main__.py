"""Runs the command line of hwsim."""

from hwsim.cli import main

if __name__ == "__main__":
    main(prog_name="python -m hwsim")
