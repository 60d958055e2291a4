"""The program `kakeya`, as the wheel brings it."""

import os
import pathlib
import sys


def main() -> None:
    """Becomes the program; its arguments are those of this process."""
    program = pathlib.Path(__file__).parent / "bin/kakeya"
    os.execv(program, ["kakeya", *sys.argv[1:]])


if __name__ == "__main__":
    main()
