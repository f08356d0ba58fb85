"""The same models in this process: what anything that serves them has to be measured by."""

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.cases import Array, Case, rows_of
from benchmarks.servers.serving_model import ServingModel
from benchmarks.turns import Turns

__all__ = ["Reference"]


class Reference:
    """`Session.run` and the prepared callable of a case, and the answers that everyone is checked by."""

    def __init__(self, case: Case) -> None:
        self._model = ServingModel(case)
        rows = rows_of(case)
        expected = [self.session_run(row) for row in rows]
        case.check_told_apart(expected)
        self.turns = Turns(case, rows, expected)
        self._batches = _batches(rows, case.max_batch)

    def session_run(self, row: Array) -> Array:
        answer: Array = self._model.session.run(self._model.fetch, {self._model.feed: row})
        return answer

    def flows(self) -> dict[str, Callable[[float], float]]:
        """Rows a second."""
        return {
            "Session.run in a loop": lambda seconds: self.turns.loop(self.session_run, seconds),
            "callable, batch 1": lambda seconds: self.turns.loop(self._model.run, seconds),
            f"callable, batch {self.turns.case.max_batch}": lambda seconds: self.turns.batches(
                self._model.run, self._batches, seconds
            ),
        }

    def alone(self, seconds: float) -> float:
        return self.turns.alone(self.session_run, seconds)

    def callable_alone(self, seconds: float) -> float:
        return self.turns.alone(self._model.run, seconds)


def _batches(rows: Sequence[Array], size: int) -> list[Array]:
    """As many as hold each row once, in turn; a batch may hold all of them more than once."""
    count = max(1, len(rows) // size)
    return [
        np.concatenate([rows[(batch * size + number) % len(rows)] for number in range(size)]) for batch in range(count)
    ]
