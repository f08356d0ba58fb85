"""A client that runs lone jobs while the calls of all three processes are counted: `ENDPOINT CASE FOLDER`.

Asked `{"jobs": 25, "blocks": 20}` it answers with the counts of each block, by role, as they stand in FOLDER. Nothing
but `client.run` is called between the two looks at them.
"""

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.cases import Case, rows_of
from pool import Client

__all__: list[str] = []

WARM = 300  # the proof that rows are independent is over by then
UP_S = 300.0


def counts(folder: Path) -> dict[str, int]:
    """By role."""
    found: dict[str, int] = {}
    for path in folder.iterdir():
        role = path.name.partition("-")[0]
        found[role] = found.get(role, 0) + int.from_bytes(path.read_bytes(), sys.byteorder)
    return found


def main(endpoint: str, case_path: str, folder: str) -> None:
    case, counters = Case.read(Path(case_path)), Path(folder)
    rows = rows_of(case)
    with Client(endpoint, connect_timeout=UP_S) as client:

        def block(jobs: int) -> dict[str, int]:
            name, signature, outputs = case.name, case.signature, [case.output]
            chosen = [rows[number % len(rows)] for number in range(jobs)]
            before = counts(counters)
            for row in chosen:
                client.run(name, row, signature=signature, outputs=outputs)
            return {role: count - before[role] for role, count in counts(counters).items()}

        client.run(case.name, rows[0], signature=case.signature, timeout=UP_S)
        block(WARM)
        _say({"ready": True})
        for line in sys.stdin:
            asked = json.loads(line)
            _say([block(asked["jobs"]) for _ in range(asked["blocks"])])


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
