"""`copy_per_device = true`: a model loaded once for each device of its worker, and a batch's rows split over them.

    rows 0…7 ─┬─ 0…3 ─► copy on /gpu:0 ─┬─► joined
              └─ 4…7 ─► copy on /gpu:1 ─┘

Each copy has a Graph, a Session and variables of its own. What cannot be split runs whole in the copy that has the
least to do. A model that keeps state has one copy, and so has one from the moment a session's run may write to it:
its copies would drift apart.
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from pool.wire.signatures import ModelInfo
from pool.wire.tensors import Array
from pool.wire.worker_messages import ModelSettings
from workers.backend import ProcessUnusable, SessionCall
from workers.independence import Known
from workers.tf.devices import scopes, short
from workers.tf.loading import load
from workers.tf.model import TensorFlowModel

__all__ = ["Copies", "load_copies", "pieces"]

MOST_LANES = 16  # whose runs are split at once; threads are made as they are needed

logger = logging.getLogger("workers.tf")


def pieces(rows: int, copies: int) -> list[slice]:
    """Runs of rows in order, for as many copies as get one, whose sizes differ by one at most."""
    count = min(rows, copies)
    ends = [rows * number // count for number in range(count + 1)] if count else [0]
    return [slice(start, stop) for start, stop in pairwise(ends)]


def load_copies(settings: ModelSettings, config: Any, gpus: int, known: Known) -> "Copies":
    """One on each GPU, or on each CPU device of a worker without. Raises as `workers.tf.loading.load` does."""
    kind, count = ("GPU", gpus) if gpus else ("CPU", config.device_count.get("CPU", 1))
    sizes = {each.stop - each.start for rows in settings.batch_sizes for each in pieces(rows, count)}
    warm = replace(settings, batch_sizes=tuple(sorted({*settings.batch_sizes, *sizes})))
    copies: list[TensorFlowModel] = []
    try:
        for number in range(count):
            copies.append(load(warm, config, gpus, partial(_moved, f"/device:{kind}:{number}")))
            if copies[0].info.stateful and count > 1:
                logger.warning("model %s: it keeps state, so it has one copy", settings.name)
                break
    except BaseException:
        for copy in copies:
            copy.close()
        raise
    return Copies(copies, known)


def _moved(device: str, meta_graph: Any) -> Any:
    """All that its author has not put on the CPU; what has no kernel for the device is TensorFlow's to move back."""
    for _, nodes in scopes(meta_graph.graph_def):
        for node in nodes:
            if not (short(node.device) or "").startswith("/cpu:") or "CPU" in device:
                node.device = device
    return meta_graph


class Copies:
    """A `workers.backend.Model` over several of the same, one a device. Safe from several threads."""

    def __init__(self, copies: Sequence[TensorFlowModel], known: Known) -> None:
        self._known = known
        self._copies = copies
        self._busy = [0] * len(copies)
        self._lock = threading.Lock()
        self._alone = len(copies) == 1
        self._whole: set[str] = set()  # signatures that give other rows than they are fed
        self._threads = ThreadPoolExecutor(MOST_LANES * max(1, len(copies) - 1), "copy")

    @property
    def info(self) -> ModelInfo:
        return self._copies[0].info

    def run(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        """See `workers.backend.Model.run`. Of several copies that raise, the first one's error counts."""
        split = [] if self._alone else self._split(signature, feeds, outputs)
        if len(split) > 1:
            found = self._run_split(signature, feeds, outputs, split)
            if found is not None:
                return found
        with self._chosen() as copy:
            return copy.run(signature, feeds, outputs)

    def _split(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[slice]:
        if signature in self._whole or not self._known.joins(self.info.name, signature, outputs):
            return []
        if not self.info.has_rows(signature, outputs):
            return []
        rows = {len(array) for array in feeds.values()}
        return pieces(rows.pop(), len(self._copies)) if len(rows) == 1 else []

    def _run_split(
        self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str], split: Sequence[slice]
    ) -> dict[str, Array] | None:
        """None where an output has other rows than were fed, so that its rows belong to nobody."""

        def one(copy: TensorFlowModel, rows: slice) -> dict[str, Array]:
            return copy.run(signature, {name: array[rows] for name, array in feeds.items()}, outputs)

        others = [self._threads.submit(one, *each) for each in zip(self._copies[1:], split[1:], strict=False)]
        try:
            first = one(self._copies[0], split[0])
        finally:
            # As bounded as the lane's own run. Not before all have ended are the feeds the caller's again.
            errors = [other.exception() for other in others]
        for error in sorted(filter(None, errors), key=lambda error: not isinstance(error, ProcessUnusable)):
            raise error
        found = [first, *(other.result() for other in others)]
        sizes = [rows.stop - rows.start for rows in split]
        if any(array.shape[:1] != (size,) for each, size in zip(found, sizes, strict=True) for array in each.values()):
            self._whole.add(signature)
            logger.warning("model %s: signature %r is not split: its rows change", self.info.name, signature)
            return None
        return {name: np.concatenate([each[name] for each in found]) for name in first}

    @contextmanager
    def _chosen(self) -> Iterator[TensorFlowModel]:
        """The one with the least runs; the first where all are one."""
        with self._lock:
            number = 0 if self._alone else self._busy.index(min(self._busy))
            self._busy[number] += 1
        try:
            yield self._copies[number]
        finally:
            with self._lock:
                self._busy[number] -= 1

    def bears_change(self, signature: str, inputs: Sequence[str], outputs: Sequence[str]) -> bool:
        """See `workers.backend.Model`."""
        return self._copies[0].bears_change(signature, inputs, outputs)

    def session_run(self, call: SessionCall) -> dict[str, Array]:
        """See `workers.backend.Model.session_run`. What sessions write is in the first copy."""
        if call.may_write and not self._alone:
            self._alone = True
            logger.warning("model %s: a session may write to it, so it has one copy from now on", self.info.name)
        return self._copies[0].session_run(call)

    def to_try(self, signature: str, rows: int) -> Iterator[Mapping[str, Array]]:
        """See `workers.backend.Model.to_try`."""
        return self._copies[0].to_try(signature, rows)

    def placement(self) -> dict[str, Any]:
        """See `workers.backend.Model.placement`; the nodes of each copy, one after the other."""
        whole: dict[str, Any] = {"devices": [], "signatures": {}, "rules": []}
        for copy in self._copies:
            report = copy.placement()
            first = len(whole["rules"])
            whole["devices"] = report["devices"]
            whole["rules"] += report["rules"]
            for name, found in report["signatures"].items():
                signature = whole["signatures"].setdefault(name, {"nodes": [], "why": found["why"]})
                moved = [
                    {**node, "rule": None if node["rule"] is None else node["rule"] + first} for node in found["nodes"]
                ]
                signature["nodes"] += moved
        return whole

    def run_plainly(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Any]:
        """See `TensorFlowModel.run_plainly`; in one copy."""
        return self._copies[0].run_plainly(signature, feeds, outputs)

    def warm_up(self) -> None:
        """See `workers.backend.Model.warm_up`; at the sizes of the pieces too."""
        for copy in self._copies:
            copy.warm_up()

    def close(self) -> None:
        self._threads.shutdown(wait=False)
        for copy in self._copies:
            copy.close()
