"""A model with Python around its graph.

    each part ─► preprocess ─► parts that fit together are joined ─► Model.run ─► cut ─► postprocess ─► its answer

All of it runs in the lane's thread. A part whose Python raises fails alone; those whose feeds come out in another shape
are run in another group, and none fails for it.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pool.wire.session_runs import SESSION_SIGNATURES
from pool.wire.signatures import ModelInfo
from pool.wire.tensors import Array
from workers.backend import Model, ProcessUnusable, SessionCall
from workers.batch import join, own, rows_differ
from workers.handlers import Handler
from workers.independence import Known
from workers.memory import BatchMemory

__all__ = ["HandledModel", "PartError"]

log = logging.getLogger("workers.handlers")

Arrays = dict[str, Array]


@dataclass(frozen=True, slots=True)
class PartError:
    """`shared`: the run that raised it was of several parts, so whose fault it is nobody knows."""

    error: Exception
    shared: bool


class HandledModel:
    """A `workers.backend.Model`, whose signatures are what the handler takes and gives. Safe from several threads.

    What is asked by the names of the graph's tensors, sessions and the placement, passes the handler by.
    """

    def __init__(self, model: Model, handler: Handler, sizes: Sequence[int], known: Known) -> None:
        """`sizes`: the numbers of rows that joined parts are padded to; none: they are run as they are."""
        self._known = known
        self._model = model
        self._handler = handler
        self._sizes = tuple(sizes)
        self._alone: set[str] = set()  # signatures whose graph turned out not to keep its rows

    @property
    def info(self) -> ModelInfo:
        graph = self._model.info
        return replace(self._handler.info, optimizations=graph.optimizations, amiss=graph.amiss)

    def run(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Arrays:
        """See `workers.backend.Model.run`."""
        (found,) = self.run_parts(signature, [feeds], outputs, BatchMemory())
        if isinstance(found, PartError):
            raise found.error
        return found

    def run_parts(
        self, signature: str, parts: Sequence[Mapping[str, Array]], outputs: Sequence[str], memory: BatchMemory
    ) -> list[Arrays | PartError]:
        """The answer of each part, or why it has none. No answer looks at what was fed. Raises `ProcessUnusable`.

        A part: a job, a piece of one with many rows, or the rows of several small jobs.
        """
        fetched = tuple(self._model.info.signatures[signature].outputs) if self._handler.needs_all_outputs else outputs
        found: dict[int, Arrays | PartError] = {}
        feeds: dict[int, Arrays] = {}
        for index, part in enumerate(parts):
            try:
                feeds[index] = self._handler.preprocess(part, signature)
            except Exception as error:
                found[index] = PartError(error, shared=False)
        vouched = self._known.joins(self._model.info.name, signature, outputs)
        for group, joins in self._groups(signature, fetched, feeds, vouched):
            for index, ran in self._run_group(signature, fetched, group, joins, memory).items():
                if not isinstance(ran, PartError):
                    ran = self._answer(signature, ran, parts[index], outputs)
                found[index] = ran
        return [found[index] for index in range(len(parts))]

    def _answer(
        self, signature: str, fetched: Arrays, part: Mapping[str, Array], outputs: Sequence[str]
    ) -> Arrays | PartError:
        try:
            answer = self._handler.postprocess(fetched, signature)
        except Exception as error:
            return PartError(error, shared=False)
        # It may hand on what it was given: memory of the client's, or of the next batch.
        return own({name: answer[name] for name in outputs}, part.values())

    def _groups(
        self, signature: str, fetched: Sequence[str], feeds: Mapping[int, Arrays], vouched: bool
    ) -> list[tuple[dict[int, Arrays], bool]]:
        """Parts whose feeds fit together, and whether those can be joined along axis 0; one that cannot is alone.

        `vouched`: whether rows of the signature are known to be independent.
        """
        joins = vouched and signature not in self._alone and self._model.info.has_rows(signature, tuple(fetched))
        groups: dict[Any, dict[int, Arrays]] = {}
        alone: list[tuple[dict[int, Arrays], bool]] = []
        for index, each in feeds.items():
            rows = {len(array) for array in each.values()} if joins else set()
            if len(rows) == 1 and min(rows) > 0:
                form = tuple((name, array.shape[1:]) for name, array in each.items())
                groups.setdefault(form, {})[index] = each
            else:
                alone.append(({index: each}, False))
        return [*((group, True) for group in groups.values()), *alone]

    def _run_group(
        self, signature: str, fetched: Sequence[str], group: Mapping[int, Arrays], joins: bool, memory: BatchMemory
    ) -> dict[int, Arrays | PartError]:
        rows = {index: len(next(iter(each.values()))) for index, each in group.items()} if joins else {}
        total = sum(rows.values())
        padded = next((size for size in self._sizes if size >= total), total) if joins else total
        joined = len(group) > 1 or padded > total
        try:
            feeds = _joined(list(group.values()), total, padded, memory) if joined else next(iter(group.values()))
            ran = own(self._model.run(signature, feeds, fetched), feeds.values())
        except ProcessUnusable:
            raise
        except Exception as error:
            return dict.fromkeys(group, PartError(error, shared=len(group) > 1))
        if not joined:
            return dict.fromkeys(group, ran)
        amiss = rows_differ(ran, padded)
        if amiss is not None:
            log.warning(
                "model %s, signature %s: %s: from now on, its parts run alone", self.info.name, signature, amiss
            )
            self._alone.add(signature)
            alone = [self._run_group(signature, fetched, {index: each}, False, memory) for index, each in group.items()]
            return {index: found for each in alone for index, found in each.items()}
        cut: dict[int, Arrays | PartError] = {}
        start = 0
        for index, count in rows.items():
            cut[index] = {name: array[start : start + count] for name, array in ran.items()}
            start += count
        return cut

    def to_try(self, signature: str, rows: int) -> Iterator[Mapping[str, Array]]:  # noqa: ARG002
        """Nothing: what a handler takes is its own affair."""
        return iter(())

    def bears_change(self, signature: str, inputs: Sequence[str], outputs: Sequence[str]) -> bool:
        """What the handler does with its arrays nobody knows. See `workers.backend.Model`."""
        return signature in SESSION_SIGNATURES and self._model.bears_change(signature, inputs, outputs)

    def session_run(self, call: SessionCall) -> Arrays:
        """See `workers.backend.Model.session_run`."""
        return self._model.session_run(call)

    def placement(self) -> dict[str, Any]:
        """See `workers.backend.Model.placement`."""
        return self._model.placement()

    def close(self) -> None:
        """See `workers.backend.Model.close`."""
        self._model.close()

    def warm_up(self) -> None:
        """Of the graph: what the handler would make of zeros says nothing."""
        self._model.warm_up()


def _joined(feeds: Sequence[Arrays], rows: int, padded: int, memory: BatchMemory) -> Arrays:
    return {
        name: join([each[name].reshape(-1) for each in feeds], first.dtype, rows, padded, first.shape[1:], memory)
        for name, first in feeds[0].items()
    }
