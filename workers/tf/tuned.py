"""A model that asks for optimizations: plain until it warms up, then with those that proved themselves."""

import gc
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pool.wire.optimizations import Optimization, OptimizationSettings
from pool.wire.signatures import ModelInfo, Refused
from pool.wire.tensors import Array
from pool.wire.worker_messages import ModelSettings
from workers.backend import SessionCall
from workers.tf.agreement import disagreement
from workers.tf.loading import load
from workers.tf.model import TensorFlowModel
from workers.tf.optimizations import TOLERANCES, choose, optimized
from workers.tf.trial_runs import NoTrial, TrialRun, trial_runs
from workers.trial_marks import TrialMarks, folder_of

__all__ = ["TunedModel"]

logger = logging.getLogger("workers.tf")

_NOT_TRIED = "the model is not warmed up, so nothing was tried"


class TunedModel:
    """A `workers.backend.Model`. Holds the model twice while it warms up, and one of them afterwards."""

    def __init__(self, settings: ModelSettings, wanted: OptimizationSettings, config: Any, gpus: int) -> None:
        """Loads it plainly; raises as `workers.tf.loading.load` does."""
        if (
            settings.layer_devices and wanted.grappler
        ):  # the remapper makes one node of several, on the device of one of them
            wanted = replace(wanted, grappler={k: v for k, v in wanted.grappler.items() if k != "remapping"})
        self._settings = settings
        self._wanted = wanted
        self._config = config
        self._gpus = gpus
        self._model = load(settings, config, gpus)
        not_tried = tuple(Optimization(kind, False, _NOT_TRIED) for kind in wanted.kinds)
        self.info: ModelInfo = replace(self._model.info, optimizations=not_tried)

    def warm_up(self) -> None:
        """See `workers.backend.Model.warm_up`. Then tries what is asked for; nothing of that stops the model."""
        plain = self._model
        plain.warm_up()
        self.info = replace(self.info, amiss=plain.info.amiss)
        try:
            trials = self._trials(plain)
        except (NoTrial, Refused) as reason:
            why = " ".join(str(reason).split())
            self.info = replace(
                self.info, optimizations=tuple(replace(each, why=why) for each in self.info.optimizations)
            )
            logger.warning("model %s: no optimization is tried: %s", self._settings.name, why)
            return
        constant: dict[str, Any] = {}  # the graph without variables, made once

        def build(kinds: tuple[str, ...]) -> TensorFlowModel:
            config = optimized(self._config, self._wanted, kinds, self._gpus)
            if "freeze" not in kinds:
                return load(self._settings, config, self._gpus)

            def freeze(read: Any) -> Any:
                if not constant:
                    constant["graph"] = plain.frozen(read)
                return constant["graph"]

            return load(self._settings, config, self._gpus, freeze)

        self._model, decided = choose(plain, self._wanted, build, trials, self._marks())
        gc.collect()  # a Session gives up what it holds when it is deleted, and its callables look at it
        self.info = replace(self.info, optimizations=decided)
        told = "; ".join(f"{each.kind} {'kept' if each.kept else 'dropped'}: {each.why}" for each in decided)
        logger.info("model %s: %s", self._settings.name, told)

    def _trials(self, plain: TensorFlowModel) -> list[TrialRun]:
        if plain.info.stateful:
            raise NoTrial("it keeps state, which a trial would change")
        trials = trial_runs(plain.run, plain.info.signatures, plain.samples, self._settings.batch_sizes)
        for trial in trials:
            again = plain.run(trial.signature, trial.feeds, tuple(trial.right))
            amiss = disagreement(again, trial.right, TOLERANCES["freeze"])
            if amiss is not None:
                raise NoTrial(f"two plain runs of signature {trial.signature!r} give different results: {amiss}")
        return trials

    def _marks(self) -> TrialMarks:
        about = f"{self._settings.name}\0{self._settings.path}\0{self._wanted}"
        return TrialMarks(folder_of(self._settings.cache), about)

    @property
    def _is_frozen(self) -> bool:
        return any(each.kept and each.kind == "freeze" for each in self.info.optimizations)

    def run(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        """See `workers.backend.Model.run`."""
        return self._model.run(signature, feeds, outputs)

    def bears_change(self, signature: str, inputs: Sequence[str], outputs: Sequence[str]) -> bool:
        """See `workers.backend.Model`."""
        return self._model.bears_change(signature, inputs, outputs)

    def session_run(self, call: SessionCall) -> dict[str, Array]:
        """See `workers.backend.Model.session_run`. A frozen model has no variables, and no more than its signatures."""
        try:
            return self._model.session_run(call)
        except Refused as error:
            if not self._is_frozen:
                raise
            why = "the model is served frozen (`freeze` in its [[model]])"
            raise Refused(f"{error} ({why})", error.fault) from error

    def to_try(self, signature: str, rows: int) -> Iterator[Mapping[str, Array]]:
        """See `workers.backend.Model.to_try`."""
        return self._model.to_try(signature, rows)

    def placement(self) -> dict[str, Any]:
        """See `workers.backend.Model.placement`."""
        return self._model.placement()

    def close(self) -> None:
        """See `workers.backend.Model.close`."""
        self._model.close()
