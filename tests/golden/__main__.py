"""`python tests/golden [PROGRAM …]` says what the core does otherwise than when it was recorded.

A PROGRAM is a kind (`lone`) or one of a kind (`lone,7`). `--first`: until something is found. `--record` says all of
it, and records anew.
"""

import sys
from itertools import islice
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # the folder above: the names here would hide others

from golden.record import FILE, NAMES, compared, record  # noqa: E402


def main(arguments: list[str]) -> int:
    wanted = [argument.replace(",", " ") for argument in arguments if not argument.startswith("--")]
    names = [name for name in NAMES if not wanted or name in wanted or name.split()[0] in wanted]
    if "--record" in arguments and not FILE.exists():
        FILE.write_text("{}")
    found = list(islice(compared(names), 1 if "--first" in arguments else None))
    for difference in found:
        print(difference)  # noqa: T201
    if "--record" in arguments:
        record()
        print(f"{len(NAMES)} programs are recorded in {FILE}; {len(found)} differences from before")  # noqa: T201
        return 0
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
