"""Runs of a graph by the names of its tensors and operations, as `tf.compat.v1.Session.run` does them.

Whatever can be seen to be right goes through a prepared callable, which costs a tenth. All else goes through
`Session.run` itself, which is as right as it can be, and says in its own words what is wrong.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from pool.wire.faults import Fault
from pool.wire.rights import needed
from pool.wire.session_runs import RUN_METADATA, SESSION, SESSION_WRITES, TRACE_LEVEL, WRITES
from pool.wire.signatures import Refused
from pool.wire.tensors import DTYPES, Array
from workers.backend import ProcessUnusable, SessionCall
from workers.tf.adoption import bears_change
from workers.tf.callables import Callables
from workers.tf.errors import of_a_run
from workers.tf.feeds import private
from workers.tf.library import tf
from workers.tf.reachable import ReachableOps
from workers.tf.route import as_array
from workers.tf.statefulness import blocks_its_thread, touches_files, uses_references, writes_references, writes_state

__all__ = ["SessionRuns"]

_WAYS_KEPT = 256
_TEXT_CHARS = 2000
_UNFED = "You must feed a value for placeholder"


@dataclass(frozen=True, slots=True)
class _Way:
    """What is known of all calls with these feeds and fetches. `plain`: nothing is wrong with the names."""

    writes: bool
    touches_files: bool
    bears_change: bool
    references: bool
    writes_references: bool
    own_threads: bool
    plain: bool
    feeds: tuple[Any, ...]  # tensors, in the order of the callable
    tensors: tuple[str, ...]
    targets: tuple[str, ...]


class SessionRuns:
    """Of one Session. Safe from several threads."""

    def __init__(
        self,
        session: Any,
        callables: Callables,
        reachable: ReachableOps,
        alone: AbstractContextManager[Any],
        before_reference_write: Callable[[], None],
    ) -> None:
        """`alone`: held while a fetched array may be a buffer that another run writes.

        `before_reference_write` is called before each run that writes such a buffer: a variable of TensorFlow 1.
        """
        self._session = session
        self._callables = callables
        self._reachable = reachable
        self._alone = alone
        self._before_reference_write = before_reference_write
        self._way = lru_cache(_WAYS_KEPT)(self._make_way)

    def run(self, call: SessionCall, references_written: bool) -> dict[str, Array]:
        """See `workers.backend.Model.session_run`. `references_written`: by any run that may run meanwhile."""
        way = self._way(tuple(sorted(call.feeds)), call.fetches)
        if call.remote and (way.writes or way.touches_files):
            raise Refused(needed(SESSION_WRITES, "sessions"), Fault.NOT_ALLOWED)
        if way.writes and not call.may_write:
            return {WRITES: np.array(True)}
        if way.writes_references:
            self._before_reference_write()
            references_written = True
        if not way.plain:
            self._check_dtypes((*call.feeds, *call.fetches))
        may_change = way.references and references_written
        metadata = tf.compat.v1.RunMetadata() if call.trace_level else None
        try:
            values = None if metadata is not None or not way.plain else _fed(call, way)
            with self._alone if may_change else nullcontext():
                found = self._plainly(call, way, metadata) if values is None else self._prepared(way, values)
                answer = {name: self._as_array(name, value) for name, value in found.items() if value is not None}
                if may_change:
                    answer = {name: array.copy() for name, array in answer.items()}
        except (Refused, ProcessUnusable):
            raise
        except Exception as error:
            raise _said(error) from error
        if metadata is not None:
            serialized = np.empty((), object)
            serialized[()] = metadata.SerializeToString()
            answer[RUN_METADATA] = serialized
        return answer

    def bears_change(self, inputs: Sequence[str], fetches: Sequence[str]) -> bool:
        """See `workers.backend.Model`. `inputs`: the feeds, and what else a job of a session has."""
        feeds = (name for name in inputs if name not in (SESSION, TRACE_LEVEL))
        return self._way(tuple(sorted(feeds)), tuple(fetches)).bears_change

    def _prepared(self, way: _Way, values: Sequence[Array]) -> dict[str, Any]:
        names = tuple(tensor.name for tensor in way.feeds)
        call = self._callables.get(names, way.tensors, way.own_threads, way.targets)
        return dict(zip(way.tensors, call(*(map(private, values) if way.writes else values)), strict=True))

    def _plainly(self, call: SessionCall, way: _Way, metadata: Any) -> dict[str, Any]:
        feeds = {name: array.tolist() if name in call.weak else array for name, array in call.feeds.items()}
        if way.writes:
            feeds = {name: private(each) if isinstance(each, np.ndarray) else each for name, each in feeds.items()}
        options = tf.compat.v1.RunOptions(trace_level=call.trace_level) if metadata is not None else None
        fetched = self._session.run(list(call.fetches), feeds, options=options, run_metadata=metadata)
        return dict(zip(call.fetches, fetched, strict=True))

    def _make_way(self, feeds: tuple[str, ...], fetches: tuple[str, ...]) -> _Way:
        ops = self._reachable.from_tensors(fetches, feeds)
        found = self._found(feeds, fetches)
        fed, tensors, targets = found or ((), (), ())
        return _Way(
            writes_state(ops),
            touches_files(ops),
            found is not None and bears_change(ops),
            uses_references(ops),
            writes_references(ops),
            blocks_its_thread(ops),
            found is not None,
            fed,
            tensors,
            targets,
        )

    def _found(
        self, feeds: Sequence[str], fetches: Sequence[str]
    ) -> tuple[tuple[Any, ...], tuple[str, ...], tuple[str, ...]] | None:
        """The tensors that are fed, and the names of what is fetched and of what is run; None if anything is amiss."""
        graph = self._session.graph
        try:
            fed = tuple(graph.as_graph_element(name, allow_operation=False) for name in feeds)
            wanted = [graph.as_graph_element(name) for name in fetches]
        except (KeyError, ValueError, TypeError):
            return None
        named = [*(tensor.name for tensor in fed), *(element.name for element in wanted)]
        if named != [*feeds, *fetches] or len(set(named)) != len(named) or not fetches:
            return None
        if not all(map(graph.is_feedable, fed)):
            return None
        operations = [element for element in wanted if isinstance(element, tf.Operation)]
        tensors = [element for element in wanted if not isinstance(element, tf.Operation)]
        if not all(map(graph.is_fetchable, (*operations, *(tensor.op for tensor in tensors)))):
            return None
        if not all(_dtype_name(tensor) in DTYPES for tensor in (*fed, *tensors)):
            return None
        return fed, tuple(tensor.name for tensor in tensors), tuple(operation.name for operation in operations)

    def _as_array(self, name: str, value: Any) -> Array:
        return as_array(value, DTYPES[_dtype_name(self._session.graph.as_graph_element(name, allow_operation=False))])

    def _check_dtypes(self, names: Sequence[str]) -> None:
        """Handles are memory of this process: one that is fetched shows it, and one that is fed would be believed."""
        for name in names:
            with suppress(KeyError, ValueError, TypeError):  # `Session.run` will say so
                element = self._session.graph.as_graph_element(name)
                if isinstance(element, tf.Operation) or (dtype := _dtype_name(element)) in DTYPES:
                    continue
                hint = "; to read a variable, fetch its value" if dtype == "resource" else ""
                raise Refused(f"ValueError: Tensor {element.name} is of dtype {dtype}, which cannot be sent{hint}")


def _dtype_name(tensor: Any) -> str:
    return str(tensor.dtype.base_dtype.name)


def _fed(call: SessionCall, way: _Way) -> list[Array] | None:
    """What the feeds become, as `Session.run` would have them; None where it may refuse one."""
    values = []
    for tensor in way.feeds:
        array = call.feeds[tensor.name]
        dtype = DTYPES[_dtype_name(tensor)]
        if array.dtype != dtype:
            if array.dtype.hasobject or dtype.hasobject:
                return None
            with np.errstate(all="ignore"):
                cast = array.astype(dtype)
                if tensor.name in call.weak and array.ndim == 0 and array.dtype.kind in "iub" and cast != array:
                    return None
            array = cast
        if not tensor.shape.is_compatible_with(array.shape):
            return None
        values.append(array)
    return values


def _said(error: Exception) -> Refused | ProcessUnusable:
    """What only the caller can put right is said in TensorFlow's words: `Session.run` raises that from Python."""
    if isinstance(error, tf.errors.OpError | MemoryError | RuntimeError | UnicodeDecodeError):
        said = of_a_run(error)
        if isinstance(said, Refused) and isinstance(error, tf.errors.InvalidArgumentError) and _UNFED in str(said):
            said.fault = Fault.INVALID_INPUT
        return said
    kind = "TypeError" if isinstance(error, TypeError) else "ValueError"
    return Refused(f"{kind}: {error}"[:_TEXT_CHARS])
