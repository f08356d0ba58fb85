"""Tries each signature of a model that has just warmed up, where nothing is known of its rows yet."""

import hashlib
import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, replace

from pool.wire.independence import Trial
from pool.wire.model_files import NotServed, files_of
from pool.wire.signatures import ModelInfo, Signature
from pool.wire.worker_messages import ModelSettings
from workers.backend import Model, ProcessUnusable
from workers.batch import own
from workers.independence.known import Known
from workers.independence.trial import Feeds, one_line, try_rows
from workers.trial_marks import EndedBefore

__all__ = ["files_seen", "identity_of", "trials_of"]

log = logging.getLogger("workers.independence")

_TRIALS_S = 5.0  # of all signatures of a model together, but for the first few runs of each


def trials_of(model: Model, info: ModelInfo, known: Known) -> Mapping[str, Trial]:
    """By signature, of those that have rows. Raises `ProcessUnusable`.

    `info`: what the pool is told of the model. Made-up values may be the end of a process: where workers died of it,
    the model is not tried again for a day. Its signatures are often much alike, and would end a worker each.
    """
    if not known.is_open(info.name) or info.stateful:
        return {}
    with_rows = {name: _with_rows(signature) for name, signature in info.signatures.items()}
    open_ones = {
        name: outputs
        for name, outputs in with_rows.items()
        if outputs and known.judgement(info.name, name, outputs) is None
    }
    if not open_ones:
        return {}
    marks = known.marks(info.name)
    if not marks.are_kept:
        why = "there is no state folder, so a trial that kills its worker could not be remembered"
        return dict.fromkeys(open_ones, Trial(untried=why))
    ends = time.monotonic() + _TRIALS_S
    try:
        with marks.trying("rows"):
            found = {name: _tried(model, info, name, outputs, known, ends) for name, outputs in open_ones.items()}
    except EndedBefore as ended:
        found = dict.fromkeys(open_ones, Trial(untried=str(ended)))
    for name, trial in found.items():
        if trial.untried:
            log.info("model %s: no trial of the rows of signature %s: %s", info.name, name, trial.untried)
    return found


def _tried(model: Model, info: ModelInfo, name: str, outputs: tuple[str, ...], known: Known, ends: float) -> Trial:
    def run(feeds: Feeds) -> Feeds:
        return own(model.run(name, feeds, outputs), feeds.values())

    try:
        return try_rows(run, outputs, model.to_try(name, max(2, known.most_rows(info.name))), ends)
    except ProcessUnusable:
        raise
    except Exception as error:  # a fault of ours, which is no reason not to serve
        log.error("model %s: the trial of the rows of signature %s failed", info.name, name, exc_info=error)
        return Trial(untried=f"in the worker: {type(error).__name__}: {one_line(error)}")


def _with_rows(signature: Signature) -> tuple[str, ...]:
    """The outputs that have rows; none where an input has none."""
    names = [name for name in signature.outputs if signature.has_rows((name,))]
    return tuple(sorted(names))


def files_seen(path: str) -> object:
    """What tells the model's files from others that may come in their place: their names, sizes and times.

    A copy may be given the times of another file, but for when it was put there. Where they cannot be looked at,
    nothing is like what this gives.
    """
    try:
        return [] if path.startswith("stub:") else [(*each, os.stat(each[0]).st_ctime_ns) for each in files_of(path)]
    except (NotServed, OSError):
        return secrets.token_hex()


def identity_of(settings: ModelSettings, info: ModelInfo, before: object) -> str:
    """A digest of all that decides what the model computes.

    The same for workers that load the same files. `before`: the `files_seen` before the load; what came in their place
    meanwhile may have been read or not, so that worker has an identity that no other has.
    """
    plain = replace(settings, cache="", warmup=True, batch_sizes=(), version=None)
    files = files_seen(settings.path)
    if files != before:
        files = secrets.token_hex()
    handler = sys.modules.get(settings.handler.name.partition(":")[0]) if settings.handler else None
    code = getattr(handler, "__file__", None)
    if code is not None:
        seen = os.stat(code)
        files = [files, seen.st_size, seen.st_mtime_ns]
    library = getattr(sys.modules.get("tensorflow"), "__version__", "")
    kept = [each.kind for each in info.optimizations if each.kept]
    decides = [asdict(plain), files, library, kept]
    return hashlib.sha256(json.dumps(decides, default=str).encode(errors="replace")).hexdigest()[:32]
