"""A loaded model: what it offers, and how each of its signatures is run."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from pool.wire.faults import Fault
from pool.wire.session_runs import SESSION_SIGNATURES
from pool.wire.signatures import ModelInfo, Refused
from pool.wire.tensors import Array
from pool.wire.worker_messages import ModelSettings
from workers.backend import ProcessUnusable, SessionCall
from workers.made_up import made_up_rows
from workers.tf.callables import Callables
from workers.tf.errors import of_a_run
from workers.tf.freezing import frozen
from workers.tf.reachable import ReachableOps
from workers.tf.route import Plan, Route, plan_of
from workers.tf.samples import Sample
from workers.tf.session_runs import SessionRuns
from workers.tf.signature_defs import BoundSignature
from workers.tf.statefulness import writes_references
from workers.tf.traces import OneRun, Traces, not_kept
from workers.tf.trial import Verdict, try_out
from workers.tf.warm_up import first_recorded, recorded, recorded_rows, rehearsals

__all__ = ["TensorFlowModel"]

logger = logging.getLogger("workers.tf")

_ROUTES_KEPT = 256  # a kilobyte each; callers choose the outputs, and their order
_WHY_CHARS = 500
_TRIALS_S = 5.0  # of all signatures together


class TensorFlowModel:
    """A `workers.backend.Model` over a Session that has the model loaded. Safe from several threads.

    Making it prepares one callable for each signature with all its outputs; raises what TensorFlow raises.
    """

    def __init__(
        self,
        settings: ModelSettings,
        session: Any,
        bound: Mapping[str, BoundSignature],
        left_out: Mapping[str, str],
        reachable: ReachableOps,
        samples: Path | None,
        traces: Traces,
    ) -> None:
        """`left_out`: as in `ModelInfo`. `samples`: a file of recorded requests to warm up with, if it is there."""
        self._session = session
        self._traces = traces
        self._batch_sizes = settings.batch_sizes
        self._samples = samples
        self._callables = Callables(session)
        ops = {name: reachable.from_tensors(signature.fetches.values()) for name, signature in bound.items()}
        self._plans = {name: plan_of(signature, ops[name]) for name, signature in bound.items()}
        self._writes_references = any(map(writes_references, ops.values()))
        self._writing = threading.Lock()
        self._session_runs = SessionRuns(
            session, self._callables, reachable, self._writing, self._will_write_references
        )
        self._route: Callable[[str, tuple[str, ...]], Route] = self._routes()
        for plan in self._plans.values():
            if plan.all_fetches:
                self._callables.prepare(plan.tensors, plan.all_fetches, plan.own_threads)
        self.info = ModelInfo(
            name=settings.name,
            path=settings.path,
            version=settings.version,
            signatures={name: signature.signature for name, signature in bound.items()},
            stateful=any(plan.stateful for plan in self._plans.values()),
            left_out=left_out,
        )

    def run(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        """Runs one signature; see `workers.backend.Model.run`.

        A signature that may keep or overwrite what it is fed gets a copy of it. Waits for another run of the
        model only where both use reference variables, which a signature of the model writes.
        """
        return self._route(signature, tuple(outputs)).run(feeds)

    def bears_change(self, signature: str, inputs: Sequence[str], outputs: Sequence[str]) -> bool:
        """See `workers.backend.Model`."""
        if signature in SESSION_SIGNATURES:
            return self._session_runs.bears_change(inputs, outputs)
        return self._plans[signature].bears_change

    def session_run(self, call: SessionCall) -> dict[str, Array]:
        """See `workers.backend.Model.session_run`."""
        return self._session_runs.run(call, self._writes_references)

    @property
    def samples(self) -> Path | None:
        """The file of recorded requests, which may not be there."""
        return self._samples

    def frozen(self, read: Any) -> Any:
        """See `workers.tf.freezing.frozen`; `read` is the `MetaGraphDef` that this model was made of."""
        bound = [plan.bound for plan in self._plans.values()]
        return frozen(
            self._session, read, [name for each in bound for name in (*each.feeds.values(), *each.fetches.values())]
        )

    def close(self) -> None:
        """Gives up the variables."""
        self._session.close()

    def run_plainly(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Any]:
        """What a program without a pool would do, to compare with: `Session.run`. Raises `Refused`, as `run` does."""
        bound = self._plans[signature].bound
        fetches = {output: bound.fetches[output] for output in outputs}
        try:
            found: dict[str, Any] = self._session.run(fetches, {bound.feeds[name]: feeds[name] for name in feeds})
        except Exception as error:  # of the model's own making
            raise of_a_run(error) from error
        return found

    def warm_up(self) -> None:
        """Runs each signature at each batch size, on recorded requests or zeros, and tries out in whose threads.

        Skips what would change the model's state, and inputs of unknown rank of which nothing was recorded. What the
        model makes of zeros says nothing about what it makes of data, so nothing is raised but `ProcessUnusable`.
        """
        self._failures: dict[str, str | None] = {}
        trials_end = time.monotonic() + _TRIALS_S
        cold = {name for name, plan in self._plans.items() if not plan.stateful}
        for sample in recorded(self.info.name, self._samples, self.info.signatures):
            name = sample.signature
            if name in cold:
                cold.remove(name)
                self._rehearse(name, sample, trials_end)
            if not self._plans[name].stateful:
                self._try(name, sample.feeds, sample.outputs, None)
        for name in sorted(cold):
            self._rehearse(name, None, trials_end)
        amiss = {name: why for name, why in self._failures.items() if why is not None}
        self.info = replace(self.info, amiss=amiss)
        for name, why in amiss.items():
            text = "model %s: signature %r failed every warm-up, so it may not work at all: %s"
            logger.warning(text, self.info.name, name, why)
        if self._traces.has_rules:
            self._say_not_kept()

    def to_try(self, signature: str, rows: int) -> Iterator[Mapping[str, Array]]:
        """See `workers.backend.Model.to_try`."""
        spec = self.info.signatures[signature]
        recorded = recorded_rows(self._samples, signature, spec, rows)
        return chain(() if recorded is None else (recorded,), made_up_rows(spec, rows))

    def _say_not_kept(self) -> None:
        try:
            told = list(not_kept(self.placement()))
        except Refused as error:
            told = [f"its layer_devices could not be checked: {error}"]
        for text in told:
            logger.warning("model %s: %s", self.info.name, text)

    def placement(self) -> dict[str, Any]:
        """What ran where in a traced run of each signature that keeps no state; see `workers.backend.Model`."""
        samples = first_recorded(self._samples, self.info.signatures)
        return self._traces.report({name: self._one_run(plan, samples.get(name)) for name, plan in self._plans.items()})

    def _one_run(self, plan: Plan, sample: Sample | None) -> OneRun | str:
        if plan.stateful:
            return "it may change the model's state"
        rehearsal = next(rehearsals(plan.bound.signature, (1,), sample), None)
        if rehearsal is None:
            return "an input has unknown rank, and no request is recorded"
        feeds = {plan.bound.feeds[key]: array for key, array in rehearsal.feeds.items()}
        return OneRun(feeds, plan.all_fetches)

    def _rehearse(self, name: str, sample: Sample | None, trials_end: float) -> None:
        plan = self._plans[name]
        tried = plan.own_threads or not plan.all_fetches
        for each in rehearsals(plan.bound.signature, self._batch_sizes, sample):
            if self._try(name, each.feeds, tuple(plan.bound.fetches), each.rows) and not tried:
                tried = True
                self._choose_threads(name, plan, each.feeds, trials_end - time.monotonic())

    def _try(self, name: str, feeds: Mapping[str, Array], outputs: Sequence[str], rows: int | None) -> bool:
        """Whether the model took it."""
        try:
            self.run(name, feeds, outputs)
        except Refused as error:
            if error.fault is Fault.OUT_OF_MEMORY and rows is not None:
                what = f"a batch of {rows} rows, which its settings allow"
                logger.warning(
                    "model %s: signature %r runs out of memory with %s: %s", self.info.name, name, what, error
                )
            else:
                logger.debug("model %s: warming up signature %r: %s", self.info.name, name, error)
            self._failures.setdefault(name, " ".join(str(error).split())[:_WHY_CHARS])
            return False
        self._failures[name] = None
        return True

    def _choose_threads(self, name: str, plan: Plan, feeds: Mapping[str, Array], budget_s: float) -> None:
        fetches = plan.all_fetches
        given = {plan.bound.feeds[key]: array for key, array in feeds.items()}
        values = [given[tensor] for tensor in plan.tensors]
        lane = self._callables.get(plan.tensors, fetches, False)

        def make_pool() -> Callable[[], object]:
            self._callables.prepare(plan.tensors, fetches, True)
            pool = self._callables.get(plan.tensors, fetches, True)
            return lambda: pool(*values)

        verdict = Verdict(False, "")
        try:
            verdict = try_out(lambda: lane(*values), make_pool, budget_s)
        except Exception as error:
            found = of_a_run(error)
            if isinstance(found, ProcessUnusable):
                raise found from error
            logger.debug("model %s: trying out threads for signature %r: %s", self.info.name, name, found)
        finally:
            self._callables.forget(plan.tensors, fetches, not verdict.own_threads)
        if verdict.own_threads:
            self._plans[name] = replace(plan, own_threads=True)
            self._route = self._routes()
        whose = "TensorFlow's threads" if verdict.own_threads else "the lane's thread"
        logger.debug("model %s: signature %r runs in %s: %s", self.info.name, name, whose, verdict.why)

    def _routes(self) -> Callable[[str, tuple[str, ...]], Route]:
        return lru_cache(_ROUTES_KEPT)(self._make_route)

    def _will_write_references(self) -> None:
        """A run by name is about to, though no signature does: what is fetched is copied from now on."""
        if not self._writes_references:
            self._writes_references = True
            self._route = self._routes()

    def _make_route(self, signature: str, outputs: tuple[str, ...]) -> Route:
        plan = self._plans[signature]
        # The run of another lane may write the buffer that this one fetched, until it is copied. No lock without
        # need: runs that hand each other values through a queue wait for each other.
        alone = self._writing if self._writes_references and plan.references else None
        return Route(plan, outputs, self._callables, alone)
