"""A loaded model: what it offers, and how each of its signatures is run."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from pool.wire.signatures import Signature, TensorInfo
from pool.wire.tensors import DTYPES, Array
from workers.backend import Arrays, Run, RunFailed, Traced
from workers.tf.devices import trace
from workers.tf.errors import of_a_run, one_line
from workers.tf.files import Source
from workers.tf.graph import Reachable, blocks_its_thread, draws_random, writes_state
from workers.tf.library import CallableOptions, tf
from workers.tf.rows import prove
from workers.tf.signature_defs import Bound, bind

_MOST_RARE = 32


class Model:
    """A `workers.backend.Model` over a Session that has the model loaded."""

    def __init__(self, settings: Mapping[str, Any], session: Any, source: Source) -> None:
        """Raises `CannotLoad`."""
        self._session = session
        self._reachable = Reachable(source.meta_graph.graph_def)
        self._bound, self.left_out = bind(source, session.graph, self._reachable)
        self.signatures: Mapping[str, Signature] = {name: each.signature for name, each in self._bound.items()}
        self.notes = source.notes
        stated: bool | None = settings["stateful"]
        # The user may know more than the graph.
        self._keep = {name for name, each in self._bound.items() if stated is True or writes_state(each.ops)}
        self.is_stateful = bool(self._keep) if stated is None else stated
        # A callable takes half a megabyte that never comes back, and callers choose outputs and leave out inputs.
        self._callable = lru_cache(len(self._bound) + _MOST_RARE)(self._made)

    def verdicts(self, signature: str, batching: str) -> Mapping[str, str]:
        bound = self._bound[signature]
        if (why := self._why_alone(bound)) or batching != "auto":
            return dict.fromkeys(bound.fetches, why or ("" if batching == "on" else "batching is off"))
        # Of jobs that give no input that has a default: `bound.defaults` are fed, the graph computes the others.
        computed = bound.signature.defaults.difference(bound.defaults)
        feeds = {name: tensor for name, tensor in bound.feeds.items() if name not in computed}
        shapes = {name: info.shape for name, info in bound.signature.inputs.items()}
        return prove(self._reachable.graph_def, feeds, shapes, bound.fetches, bound.defaults)

    def _why_alone(self, bound: Bound) -> str:
        if self.is_stateful:
            return "the model is stateful"
        if draws_random(bound.ops):
            return "it draws random numbers"
        if bound.has_parts:
            return "it has ragged or sparse tensors"
        described = bound.signature
        for name, info in (*described.inputs.items(), *described.outputs.items()):
            if not info.shape or info.shape[0] != -1:
                return f"axis 0 of {name!r} ({info}) is not of any size"
        return "" if described.inputs else "it has no inputs"

    def prepare(self, signature: str, inputs: Sequence[str], outputs: Sequence[str]) -> Run:
        bound = self._bound[signature]
        # In an order of their own: the same names in another order are no other callable.
        names = sorted(inputs)
        left = [name for name in bound.defaults if name not in inputs]
        constants = [bound.defaults[name] for name in left]
        feeds = tuple(bound.feeds[name] for name in (*names, *left))
        fetches = tuple(sorted({bound.fetches[name] for name in outputs}.difference(feeds)))
        places = {tensor: place for place, tensor in enumerate((*fetches, *feeds))}
        found = [
            (name, places[bound.fetches[name]], DTYPES[bound.signature.outputs[name].dtype]) for name in sorted(outputs)
        ]
        gives_feeds = any(place >= len(fetches) for _, place, _ in found)
        keeps = signature in self._keep
        call = self._callable
        own_threads = blocks_its_thread(bound.ops)
        try:
            call(feeds, fetches, own_threads)
        except Exception as error:
            raise of_a_run(error) from error

        def run(arrays: Arrays) -> Arrays:
            values = [arrays[name] for name in names]
            values += constants
            fed = [value.copy() for value in values] if keeps else values
            try:
                fetched = call(feeds, fetches, own_threads)(*fed)
            except Exception as error:  # of the model's own making, by what it computes or refuses
                raise of_a_run(error) from error
            if gives_feeds:
                fetched = [*fetched, *values]
            # TensorFlow gives a scalar as a number or `bytes`; numpy's own string type would drop trailing NULs.
            return {
                name: value if type(value := fetched[place]) is np.ndarray else np.asarray(value, dtype)
                for name, place, dtype in found
            }

        return run

    def prepare_session(self, feeds: Sequence[str], fetches: Sequence[str]) -> Run:
        graph = self._session.graph
        try:
            found = [(name, graph.as_graph_element(name)) for name in fetches]
        except (KeyError, TypeError, ValueError) as error:
            raise RunFailed("InvalidInput", one_line(error)) from None
        for name, element in found:
            if isinstance(element, tf.Tensor) and element.dtype.base_dtype.name not in DTYPES:
                raise RunFailed("InvalidInput", f"{name} has dtype {element.dtype.name}, which cannot be sent")
        if not self.is_stateful and writes_state(self._reachable.ops(fetches, feeds)):
            raise RunFailed("InvalidInput", "it writes variables: set `stateful = true` for the model")

        def run(arrays: Arrays) -> Arrays:
            try:
                values = self._session.run(list(fetches), {name: array.copy() for name, array in arrays.items()})
            except (TypeError, ValueError) as error:  # also for a feed that is no tensor of the graph
                raise RunFailed("InvalidInput", one_line(error)) from error
            except Exception as error:
                raise of_a_run(error) from error
            return {
                name: np.asarray(value, DTYPES[element.dtype.base_dtype.name])
                for (name, element), value in zip(found, values, strict=True)
                if value is not None
            }

        return run

    def _made(self, feeds: tuple[str, ...], fetches: tuple[str, ...], own_threads: bool) -> Callable[..., list[Any]]:
        """In the caller's thread, which saves a hand-over of 20 µs; ops that block need TensorFlow's."""
        if not fetches:  # TensorFlow refuses a call for nothing
            return lambda *_: []
        run = tf.compat.v1.RunOptions(inter_op_thread_pool=0 if own_threads else -1)
        options = CallableOptions(feed=feeds, fetch=fetches, run_options=run)
        made: Callable[..., list[Any]] = self._session._make_callable_from_options(options)
        return made

    def _why_not_on_zeros(self, signature: str) -> str:
        if signature in self._keep:
            return "a run of it changes the model's state"
        if blocks_its_thread(self._bound[signature].ops):
            return "a run of it may wait for ever for another one"
        has_zeros = all(info.shape is not None for info in self.signatures[signature].inputs.values())
        return "" if has_zeros else "it has an input of any rank, or parts of a ragged or sparse tensor"

    def trace(self, signature: str) -> list[Traced]:
        if why := self._why_not_on_zeros(signature):
            raise RunFailed("InvalidInput", f"signature {signature!r} cannot be run on zeros: {why}")
        bound = self._bound[signature]
        feeds = {bound.feeds[name]: _zeros(info) for name, info in bound.signature.inputs.items()}
        try:
            return trace(self._session, self._reachable.graph_def, feeds, [*bound.fetches.values()])
        except Exception as error:
            raise of_a_run(error) from error

    def warm_up(self) -> None:
        """Prepares each signature, and runs those on zeros that change no state."""
        for name, signature in self.signatures.items():
            try:
                run = self.prepare(name, list(signature.inputs), list(signature.outputs))
                if not self._why_not_on_zeros(name):
                    run({key: _zeros(info) for key, info in signature.inputs.items()})
            except RunFailed as error:
                self.notes.append(f"signature {name!r} failed its warm-up on zeros: {error}")


def _zeros(info: TensorInfo) -> Array:
    """Or empty strings. Each axis of any size has the size 1."""
    dtype = DTYPES[info.dtype]
    return np.full([abs(axis) for axis in info.shape or ()], b"" if dtype.hasobject else 0, dtype)
