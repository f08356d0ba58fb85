"""So many clients in one process, a thread and one job in flight each: `ENDPOINT CASE EXPECTED CLIENTS`.

Asked `{"seconds": 2}`, they call `client.run` for so long, and it answers with jobs a second, the jobs, their median
in seconds, and what this process has spent on each; the answers are checked afterwards.
"""

import json
import statistics
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import Array, Case, rows_of
from benchmarks.processor import spent_here
from benchmarks.turns import Lone, Turns
from pool import Client

__all__: list[str] = []


class Member(threading.Thread):
    """One client for one turn."""

    def __init__(self, client: Client, turns: Turns, first: int, seconds: float) -> None:
        super().__init__()
        self._client, self._turns, self._first, self._seconds = client, turns, first, seconds
        self.lone: Lone | None = None

    def run(self) -> None:
        case = self._turns.case
        options: dict[str, Any] = {"signature": case.signature, "outputs": [case.output]}

        def run(row: Array) -> Array:
            answer: Array = self._client.run(case.name, row, **options)[case.output]
            return answer

        self.lone = self._turns.lone(run, self._seconds, self._first)


def turn(clients: list[Client], turns: Turns, seconds: float) -> dict[str, float]:
    before = spent_here()
    members = [Member(client, turns, number, seconds) for number, client in enumerate(clients)]
    for member in members[1:]:
        member.start()
    members[0].run()  # in this thread, which is the only one where there is one client
    for member in members[1:]:
        member.join()
    cost = spent_here().since(before)
    ended = [member.lone for member in members if member.lone is not None]
    assert len(ended) == len(members), "a client failed; the log says why"
    for lone in ended:
        turns.check(lone.kept)
    taken = [time for lone in ended for time in lone.taken]
    processor_s, wake_ups = cost.each(len(taken))
    return {
        "rate": sum(len(lone.taken) / lone.seconds for lone in ended),
        "jobs": len(taken),
        "p50": statistics.median(taken),
        "processor_s": processor_s,
        "wake_ups": wake_ups,
    }


def main(endpoint: str, case_path: str, expected_path: str, count: str) -> None:
    case = Case.read(Path(case_path))
    turns = Turns(case, rows_of(case), list(np.load(expected_path)))
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(endpoint)) for _ in range(int(count))]
        turn(clients, turns, 0.2)
        _say({"ready": True})
        for line in sys.stdin:
            _say(turn(clients, turns, float(json.loads(line)["seconds"])))


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
