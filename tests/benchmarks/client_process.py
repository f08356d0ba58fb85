"""A client of a pool in a process of its own, for several at once: `ENDPOINT CASE EXPECTED IN_FLIGHT`.

Asked `{"seconds": 2}`, it submits for so long, checks, and answers with rows a second.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import Case, rows_of
from benchmarks.turns import Turns
from pool import Client

__all__: list[str] = []


def main(endpoint: str, case_path: str, expected_path: str, in_flight: str) -> None:
    case = Case.read(Path(case_path))
    turns = Turns(case, rows_of(case), list(np.load(expected_path)))
    with Client(endpoint) as client:

        def submit(row: Any) -> Any:
            return client.submit(case.name, row, signature=case.signature, outputs=[case.output])

        submit(turns.rows[0]).result()
        _say({"ready": True})
        for line in sys.stdin:
            _say({"rate": turns.window(submit, int(in_flight), float(json.loads(line)["seconds"]))})


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
