"""`python tests/benchmarks`: see `benchmarks.command`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # the folder above: the names here would hide others

from benchmarks.command import main  # noqa: E402

if __name__ == "__main__":
    main()
