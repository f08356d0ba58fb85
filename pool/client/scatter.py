"""One input on all replicas of a model at once: cut into pieces, or the same for each."""

import queue
from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

if TYPE_CHECKING:
    import numpy as np

    from pool.client.connection import Connection

from pool.client.futures import JobFuture
from pool.client.questions import Questions
from pool.client.request import ReplicaOptions, Request, request_for
from pool.client.result import JobResult
from pool.errors import InvalidInput, ModelNotFound, WorkerLost

__all__ = ["Replicas", "piece_sizes"]

REDUCTIONS = (None, "concat", "sum", "mean")


class Replicas(Questions):
    """The part of a `Client` that runs something on several workers for one caller, and waits for it."""

    @abstractmethod
    def _connected(self, request: Request | None = None) -> "Connection": ...

    @abstractmethod
    def _check_thread(self) -> None: ...

    @overload
    def scatter(
        self,
        model: str,
        inputs: object,
        *,
        reduce: None = None,
        pieces: int | None = None,
        **options: Unpack[ReplicaOptions],
    ) -> list[JobResult]: ...

    @overload
    def scatter(
        self,
        model: str,
        inputs: object,
        *,
        reduce: Literal["concat", "sum", "mean"],
        pieces: int | None = None,
        **options: Unpack[ReplicaOptions],
    ) -> "dict[str, np.ndarray[Any, Any]]": ...

    def scatter(
        self,
        model: str,
        inputs: object,
        *,
        reduce: Literal["concat", "sum", "mean"] | None = None,
        pieces: int | None = None,
        **options: Unpack[ReplicaOptions],
    ) -> "dict[str, np.ndarray[Any, Any]] | list[JobResult]":
        """Cuts the inputs along axis 0 into pieces, runs them side by side, waits for all, and combines the answers.

        There is a piece for each replica that is READY, or `pieces` of them; their rows differ by one at most. They
        are not pinned, so a replica that is busy or dies holds up none. Under overload they wait for room while their
        time lasts, as with `submit(block=True)`. If one fails, the others are cancelled and its error is raised.

        `reduce`: None gives the answers in the order of the input; "concat" joins each output along axis 0; "sum" and
        "mean" add each output up, element by element, in an order that does not depend on who answers first. "mean" is
        weighted by the pieces' rows: of outputs that are means over their rows, such as the gradients of a mean loss,
        it is the mean over the whole input, also where the rows do not divide evenly. Floating dtypes are added in
        float32 at least, integers have no "mean", strings and booleans neither.

        Raises the `pool.errors` of `Client.submit`; `InvalidInput` too for inputs without a common axis 0, and for
        outputs that cannot be combined so.
        """
        from pool.client.bulk.sender import submit_many  # numpy comes with the first tensor
        from pool.client.payload import concatenated, to_inputs
        from pool.client.reduce import Reduction

        if reduce not in REDUCTIONS:
            raise InvalidInput(f'reduce is {reduce!r:.40}; give None, "concat", "sum" or "mean"')
        if pieces is not None and (isinstance(pieces, bool) or not isinstance(pieces, int) or pieces < 1):
            raise InvalidInput(f"pieces is {pieces!r:.40}; give a positive integer, or None for one per replica")
        request = request_for(model, device=None, **options)
        self._check_thread()
        whole = to_inputs(model, inputs)
        if whole.rows is None:
            raise InvalidInput(f"model {model}: scatter cuts along axis 0, so all inputs must have the same size there")
        sizes = piece_sizes(whole.rows, pieces or max(1, self._replicas(model, request.version)))
        cut = [whole.cut(start, stop) for start, stop in pairwise(accumulate(sizes, initial=0))]
        jobs = submit_many(self._connected, request, cut, patient=True, apart=True)
        if reduce == "sum" or reduce == "mean":
            reduction = Reduction(reduce, sizes)
            _gather(jobs, reduction.add)
            return reduction.result()
        by_piece: dict[int, JobResult] = {}
        _gather(jobs, by_piece.__setitem__)
        answers = [by_piece[piece] for piece in range(len(jobs))]
        if reduce is None:
            return answers
        try:
            return concatenated(answers)
        except ValueError as error:
            raise InvalidInput(f'model {model}: reduce="concat" cannot join its answers: {error}') from None

    def broadcast(
        self,
        model: str,
        inputs: object,
        **options: Unpack[ReplicaOptions],
    ) -> dict[int, JobResult]:
        """Runs the same input once on each replica that is READY, waits for all: the answers by slot number.

        Raises as `scatter` does, `WorkerLost` where no replica is READY. A replica that dies meanwhile fails it: what
        is pinned to it runs nowhere else.
        """
        from pool.client.bulk.sender import submit_many  # numpy comes with the first tensor
        from pool.client.payload import to_inputs

        request_for(model, device=None, **options)  # what is wrong with it is said before anybody is asked
        self._check_thread()
        whole = to_inputs(model, inputs)
        slots = self._ready_slots(model, options.get("version"))
        if not slots:
            raise WorkerLost(f"model {model}: no worker with this model is READY")
        jobs: list[JobFuture] = []
        for slot in slots:
            request = request_for(model, device=f"slot:{slot}", **options)
            jobs += submit_many(self._connected, request, [whole], patient=True, apart=True)
        answers: dict[int, JobResult] = {}
        _gather(jobs, answers.__setitem__)
        return {slot: answers[number] for number, slot in enumerate(slots)}

    def _replicas(self, model: str, version: str | int | None) -> int:
        """How many are READY."""
        return len(self._ready_slots(model, version))

    def _ready_slots(self, model: str, version: str | int | None) -> list[int]:
        from pool.wire.records import said_of  # they come with the first question

        models = self.models()
        if (said := said_of(models, model, version)) is not None:
            return list(said.ready_slots)
        there = ", ".join(each.name for each in models)
        which = "" if version is None else f" of version {version!r:.80}"
        raise ModelNotFound(f"no model {model!r:.100}{which}; there are: {there}")


def piece_sizes(rows: int, pieces: int) -> list[int]:
    """The rows of each piece, the larger ones first; no piece is empty."""
    pieces = min(rows, pieces)
    least, more = divmod(rows, pieces)
    return [least + (number < more) for number in range(pieces)]


def _gather(jobs: Sequence[JobFuture], take: Callable[[int, JobResult], None]) -> None:
    """Hands over number and result of each as it comes. Raises the first error, and cancels the others then."""
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number, job in enumerate(jobs):
        job.add_done_callback(lambda _, number=number: done.put(number))  # type: ignore[misc]  # cannot be inferred
    try:
        for _ in jobs:
            number = done.get()  # ends: every future does
            take(number, jobs[number].result())
    finally:
        for job in jobs:
            job.cancel()
