"""A batch run: the parts that can be read are joined, run once, and each gets its own rows of what came back.

    RUN ─► resolve and read the parts ─► join, pad ─► Model.run ─► check the rows, cut ─► outcomes

A part that cannot be read fails alone, and the others run without it. If the run fails, nobody knows by whose fault.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from pool.wire.faults import Fault
from pool.wire.lent import AnswerSpace
from pool.wire.outcomes import Failed, Failure, RowsChanged, Spoiled
from pool.wire.packing import SMALL_BYTES, AnswerMemory, pack_answer, pack_answers
from pool.wire.signatures import PLACEMENT, REPORT, Refused
from pool.wire.tensors import Array
from pool.wire.worker_messages import Remark, Run
from workers.backend import Model, ProcessUnusable
from workers.batch import following, own, rows_differ
from workers.calls import Call, Calls
from workers.declared import Declared
from workers.handled import HandledModel, PartError
from workers.independence import Sample, Sampler
from workers.inputs import Buffer
from workers.memory import BatchMemory
from workers.parts import Parts, read_parts
from workers.raised import fault_of
from workers.sessions import Sessions
from workers.shared_memory import SharedMemory

__all__ = ["Finished", "Runner"]


@dataclass(slots=True)
class Finished:
    """A batch that was run. `frames` of each part's answer; 0 stands for the next of `failures`, as in the wire's DONE.

    The instants are `time.monotonic`'s. The payload may be views of arrays that nothing writes any more: what a model
    gives stays as it is, and what of it looks at what was fed was copied. So it can leave without a copy.
    """

    frames: tuple[int, ...]
    failures: tuple[Failure, ...]
    payload: list[Buffer]
    began: float
    ended: float
    sample: Sample | None
    """Rows to be compared when it is answered."""


class Runner:
    """Runs batches of these models. Safe from several threads."""

    def __init__(
        self,
        models: Mapping[str, Model],
        shared_memory: SharedMemory,
        sessions: Sessions | None = None,
        tell: Callable[[Remark], object] = lambda _: None,
    ) -> None:
        """`sessions`: what runs the graphs by the names of their tensors, if anything does.

        `tell` hears of outputs that contradict what their model declares.
        """
        self._models = models
        self._sessions = sessions
        self._shared_memory = shared_memory
        self._calls = {name: Calls(model) for name, model in models.items()}
        self._declared = {name: Declared(model.info, tell) for name, model in models.items()}

    def run(self, run: Run, frames: Sequence[Buffer], memory: BatchMemory, sampler: Sampler | None = None) -> Finished:
        """`frames`: the payload of the RUN; `memory` and `sampler` are the lane's.

        Raises `ProcessUnusable`; all else is an outcome.
        """
        memory.begin()
        failures: dict[int, Failure] = {}
        parts = read_parts(run, frames, self._calls, self._shared_memory, memory, sampler, failures)
        if parts is None:
            now = time.monotonic()
            return _finished(run, [], failures, now, now, None)
        if parts.call.handled is not None:
            return self._handled(run, parts, parts.call.handled, memory, sampler, failures)
        answers: list[list[Buffer]] = []
        sample: Sample | None = None
        began = ended = time.monotonic()
        try:
            feeds = parts.feeds(run.by_rows, memory)
            began = time.monotonic()
            try:
                fetched, amiss = self._ran(run, parts, feeds)
            finally:
                ended = time.monotonic()
            if amiss is None:
                watch = parts.call.watch
                if watch.joined if run.by_rows else watch.alone:
                    sample = self._sampled(run, parts, feeds, fetched, sampler, ended - began)
                answers = self._answers(run, parts, fetched)
            else:
                where = f"model {run.model}, signature {parts.call.signature}"
                failures.update(dict.fromkeys(parts.positions, RowsChanged(f"{where}: {amiss}")))
        except ProcessUnusable:
            raise
        except Exception as error:
            failure = Failed if len(parts.positions) == 1 else Spoiled
            failures.update(dict.fromkeys(parts.positions, failure(*fault_of(run.model, error))))
            answers = []
        return _finished(run, answers, failures, began, ended, sample)

    def run_rows(self, sample: Sample, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """Rows of a sample in other company. Raises `Refused` and `ProcessUnusable`."""
        fetched = self._models[sample.model].run(sample.signature, feeds, sample.outputs)
        return own(fetched, feeds.values())

    def tend(self, now: float) -> None:
        """Called by lanes that have nothing to do."""
        if self._sessions is not None:
            self._sessions.tend(now)

    def _ran(self, run: Run, parts: Parts, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], str | None]:
        """What came of it, of which nothing large is anybody's feed; and what is amiss with its rows, if anything is.

        What is small may be: it is copied when the answers are packed, before anything else is fed.
        """
        if not 0 < run.microbatch < parts.fed:
            fetched = self._fetched(run, parts.call, feeds)
            if run.by_rows and (amiss := rows_differ(fetched, parts.fed)) is not None:
                return {}, amiss
            return own(fetched, feeds.values(), SMALL_BYTES), None
        runs: list[dict[str, Array]] = []
        for begin in range(0, parts.fed, run.microbatch):
            taken = {name: array[begin : begin + run.microbatch] for name, array in feeds.items()}
            fetched = self._fetched(run, parts.call, taken)
            if run.by_rows and (amiss := rows_differ(fetched, min(run.microbatch, parts.fed - begin))) is not None:
                return {}, amiss
            runs.append(fetched)
        return following(runs), None

    def _fetched(self, run: Run, call: Call, feeds: Mapping[str, Array]) -> dict[str, Array]:
        if call.own:
            fetched = call.model.run(call.signature, feeds, call.outputs)
            self._declared[run.model].check(call.signature, fetched)
            return fetched
        if call.signature == PLACEMENT:
            return {REPORT: np.array(json.dumps(call.model.placement()).encode(), object)}
        if self._sessions is None:
            raise Refused(f"{call.signature} is not served here", Fault.MODEL_FAILED)
        return self._sessions.run(run.model, call, feeds, run.owner)

    def _sampled(
        self,
        run: Run,
        parts: Parts,
        feeds: Mapping[str, Array],
        fetched: Mapping[str, Array],
        sampler: Sampler | None,
        run_s: float,
    ) -> Sample | None:
        """Of a batch whose call is watched."""
        call = parts.call
        if sampler is None or not call.watch.wanted(run_s):
            return None
        rows = parts.total if run.by_rows else None
        if 0 < run.microbatch < parts.fed:  # one run of several, or more rows would run together than may
            feeds = {name: array[: run.microbatch] for name, array in feeds.items()}
            fetched = {name: array[: run.microbatch] for name, array in fetched.items()}
        try:
            return sampler.sample(call.model.info, call.signature, call.outputs, feeds, fetched, rows, run_s)
        except MemoryError:
            return None  # no job fails for it

    def _handled(
        self,
        run: Run,
        parts: Parts,
        model: HandledModel,
        memory: BatchMemory,
        sampler: Sampler | None,
        failures: dict[int, Failure],
    ) -> Finished:
        """The sample is of one part, which in a proven signature shared its run with the others."""
        call = parts.call
        began = time.monotonic()
        given = [parts.part(number, run.by_rows) for number in range(len(parts.positions))]
        found = model.run_parts(call.signature, given, call.outputs, memory)
        ended = time.monotonic()
        answers = []
        for position, rows, each in zip(parts.positions, parts.rows, found, strict=True):
            if isinstance(each, PartError):
                failure = Spoiled if each.shared else Failed
                failures[position] = failure(*fault_of(run.model, each.error))
            elif run.by_rows and (amiss := rows_differ(each, rows)) is not None:
                failures[position] = RowsChanged(f"model {run.model}, signature {call.signature}: {amiss}")
            else:
                self._declared[run.model].check(call.signature, each)
                answers.append(pack_answer(each, self._space(run.spaces[position]) if run.spaces else None))
        sample = None
        if (call.watch.joined if run.by_rows else call.watch.alone) and not isinstance(found[0], PartError):
            sample = self._sampled(run, parts, given[0], found[0], sampler, ended - began)
        return _finished(run, answers, failures, began, ended, sample)

    def _answers(self, run: Run, parts: Parts, fetched: Mapping[str, Array]) -> list[list[Buffer]]:
        spaces = [self._space(run.spaces[position]) for position in parts.positions] if run.spaces else []
        if run.by_rows and (len(parts.rows) > 1 or parts.fed > parts.total):
            return pack_answers(fetched, parts.rows, spaces)
        return [pack_answer(fetched, spaces[0] if spaces else None)]

    def _space(self, space: AnswerSpace) -> AnswerMemory | None:
        if not space.size_bytes:
            return None
        return AnswerMemory(self._shared_memory.memory(space.segment, space.offset, space.size_bytes), space.offset)


def _finished(
    run: Run,
    answers: list[list[Buffer]],
    failures: Mapping[int, Failure],
    began: float,
    ended: float,
    sample: Sample | None,
) -> Finished:
    """`answers`: of the parts that did not fail, in order."""
    payload = answers[0] if len(answers) == 1 else list(chain.from_iterable(answers))
    frames = tuple(map(len, answers))
    if not failures:
        return Finished(frames, (), payload, began, ended, sample)
    left = iter(frames)
    frames = tuple([0 if position in failures else next(left) for position in range(len(run.rows) or 1)])
    ordered = tuple([failures[position] for position in sorted(failures)])
    return Finished(frames, ordered, payload, began, ended, sample)
