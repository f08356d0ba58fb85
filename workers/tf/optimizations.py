"""Which of the optimizations that a model's configuration asks for it gets: those that are right, and quicker.

    plain ─► + freeze ─► + grappler ─► + xla ─► + mixed precision
              each is loaded beside what is kept so far, and held against the plain model's answers
              and the kept one's times; whichever of the two loses is closed, and gives up what it holds on the device

A optimization that fails in whatever way is dropped, and the model is served without it.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pool.wire.optimizations import Optimization, OptimizationSettings
from pool.wire.signatures import ModelInfo
from workers.backend import Model, ProcessUnusable
from workers.tf.agreement import disagreement
from workers.tf.errors import one_line
from workers.tf.library import RewriterConfig, tf
from workers.tf.trial import Measure, ratio, timed
from workers.tf.trial_runs import TrialRun
from workers.trial_marks import TrialMarks

__all__ = ["TOLERANCES", "Build", "choose", "optimized"]

logger = logging.getLogger("workers.tf")

TOLERANCES = {"freeze": 1e-4, "grappler": 1e-4, "xla": 1e-3, "mixed_precision": 2e-2}
FASTER = 0.95  # of the time of all trial runs together
NO_SLOWER = 1.05  # each of them by itself
_RUNS_BEFORE = 4  # XLA compiles what it meets again
_BUDGET_S = 10.0  # a optimization, or for a few rounds of each trial run
_LONGEST_S = 5.0  # longer runs are not tried: three rounds of a few such would use warm-up's time up
_BLOCK_S = 5e-3
_ROUNDS = 15
_LEAST_ROUNDS = 3

_TOGGLES = {"on": RewriterConfig.ON, "off": RewriterConfig.OFF, "aggressive": RewriterConfig.AGGRESSIVE}


Build = Callable[[tuple[str, ...]], Any]
"""A `workers.backend.Model` with these kinds of optimizations."""


_Timed = tuple[TrialRun, float, float]
"""A trial, the seconds that the kept one takes for it, and how many times that the candidate takes."""


def optimized(config: Any, settings: OptimizationSettings, kinds: Sequence[str], gpus: int) -> Any:
    """A `ConfigProto` as the given one, in which these are on."""
    made = tf.compat.v1.ConfigProto()
    made.CopyFrom(config)
    rewrites = made.graph_options.rewrite_options
    if "grappler" in kinds:
        for name, choice in (settings.grappler or {}).items():
            setattr(rewrites, name, _TOGGLES[choice])
    if "xla" in kinds:
        made.graph_options.optimizer_options.global_jit_level = tf.compat.v1.OptimizerOptions.ON_1
    if "mixed_precision" in kinds:
        # `auto_mixed_precision_cpu` makes TensorFlow 2.21 raise an IndexError of C++.
        setattr(rewrites, "auto_mixed_precision" if gpus else "auto_mixed_precision_onednn_bfloat16", RewriterConfig.ON)
    return made


def choose(
    plain: Any,
    settings: OptimizationSettings,
    build: Build,
    trials: Sequence[TrialRun],
    marks: TrialMarks,
    measure: Measure = timed,
) -> tuple[Any, tuple[Optimization, ...]]:
    """The model to serve and what was decided about each kind; all others are closed. Raises `ProcessUnusable`."""
    current = plain
    kept: tuple[str, ...] = ()
    decided: list[Optimization] = []
    for kind in settings.kinds:
        kinds = (*kept, kind)
        candidate = None
        tolerance = settings.tolerance or max(TOLERANCES[each] for each in kinds)
        try:
            with marks.trying("+".join(kinds)):
                candidate = build(kinds)
                candidate.warm_up()
                why = _wrong(candidate, plain.info, trials, tolerance)
                ratios = None if why else _ratios(current, candidate, trials, measure)
        except ProcessUnusable:
            raise
        except Exception as error:  # whatever TensorFlow's own rewriting raises
            why, ratios = one_line(error), None
        if ratios is None:
            decided.append(Optimization(kind, False, why or ""))
            logger.warning("model %s: %s is dropped: %s", plain.info.name, kind, why)
            quicker = False
        else:
            quicker, told = _verdict(ratios)
            decided.append(Optimization(kind, quicker, told))
        if quicker:
            current, candidate, kept = candidate, current, kinds
        if candidate is not None:
            candidate.close()
    return current, tuple(decided)


def _wrong(candidate: Model, plain: ModelInfo, trials: Sequence[TrialRun], tolerance: float) -> str | None:
    if _names(candidate.info) != _names(plain):
        return "it has other signatures than the model"
    for trial in trials:
        for _ in range(_RUNS_BEFORE):
            found = candidate.run(trial.signature, trial.feeds, tuple(trial.right))
            amiss = disagreement(found, trial.right, tolerance)
            if amiss is not None:
                return f"signature {trial.signature!r}{_of_rows(trial)}: {amiss}"
    return None


def _names(info: ModelInfo) -> Mapping[str, Any]:
    """Without the shapes: of a graph without variables TensorFlow infers more of them, or less."""
    return {
        key: [[(name, spec.dtype) for name, spec in side.items()] for side in (signature.inputs, signature.outputs)]
        for key, signature in info.signatures.items()
    }


def _ratios(current: Model, candidate: Model, trials: Sequence[TrialRun], measure: Measure) -> list[_Timed]:
    found: list[_Timed] = []
    for trial in trials:
        outputs = tuple(trial.right)

        def way(model: Model, trial: TrialRun = trial, outputs: tuple[str, ...] = outputs) -> Callable[[], object]:
            return lambda: model.run(trial.signature, trial.feeds, outputs)

        one, other = way(current), way(candidate)
        run_s = max(1e-6, min(measure(one, 1, 1), measure(one, 1, 1)))
        if run_s > _LONGEST_S:
            found.append((trial, run_s, math.inf))
            continue
        budget_s = max(_BUDGET_S / len(trials), 3 * _LEAST_ROUNDS * run_s)
        runs = max(1, int(_BLOCK_S / run_s))
        rounds = max(_LEAST_ROUNDS, min(_ROUNDS, int(budget_s / (2 * runs * run_s))))
        found.append((trial, run_s, ratio(one, other, runs, 1, rounds, budget_s, measure)))
    return found


def _verdict(ratios: Sequence[_Timed]) -> tuple[bool, str]:
    whole = sum(run_s for _, run_s, _ in ratios)
    together = sum(run_s * times for _, run_s, times in ratios) / whole
    trial, _, worst = max(ratios, key=lambda each: each[2])
    which = f"signature {trial.signature!r}{_of_rows(trial)}"
    if math.isinf(worst):
        return False, f"{which} takes more than {_LONGEST_S:g} s, or far longer than before"
    told = f"takes {together:.2f} of the time"
    if together <= FASTER and worst > NO_SLOWER:
        return False, f"{told}, but {which} takes {worst:.2f} of its own"
    return together <= FASTER, told


def _of_rows(trial: TrialRun) -> str:
    return "" if trial.rows is None else f" with {trial.rows} rows"
