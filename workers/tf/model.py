"""Models of any format are loaded into Sessions. A loaded model: what it offers, and how its signatures are run."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pool.wire.signatures import Signature, TensorInfo
from pool.wire.tensors import DTYPES, Array
from workers.backend import Arrays, CannotLoad, LoadFailed, Run, RunFailed, Traced
from workers.tf.bare_graph import read_bare_graph
from workers.tf.devices import Devices, keep_from_remapper, place, trace
from workers.tf.errors import of_a_run, one_line, passes
from workers.tf.files import Format, Source, format_at, read_saved_model
from workers.tf.graph import Reachable, blocks_its_thread, draws_random, writes_state
from workers.tf.keras import read_keras
from workers.tf.library import CallableOptions, load_op_libraries, open_session, session_config, tf
from workers.tf.rows import prove
from workers.tf.signature_defs import Bound, bind

_MOST_RARE = 32


class Backend:
    """Its `load` is a `workers.backend.Load`: a Graph and a Session for each model."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings`: "tensorflow", that section; "device", with the uuids of its GPUs; "state", a folder.

        Raises `CannotLoad` for a library of ops that cannot be loaded. Takes no GPU before the first `load`, which
        raises `Unfit` unless TensorFlow sees exactly the device's.
        """
        self._gpus = len(settings["device"]["uuids"])
        self._tensorflow = settings["tensorflow"]
        self._state: str = settings["state"]
        load_op_libraries(self._tensorflow["op_libraries"])

    def load(self, settings: Mapping[str, Any]) -> "Model":
        where = f"model {settings['name']}: {settings['path']}"
        try:
            return self._load(settings)
        except (CannotLoad, LoadFailed) as error:
            raise type(error)(f"{where}: {error}") from None
        except Exception as error:  # of a foreign file TensorFlow and protobuf raise whatever they meet first
            if passes(error):
                raise LoadFailed(f"{where} cannot be loaded now: {one_line(error)}") from error
            is_unknown_op = "Op type not registered" in str(error)
            hint = "; give the library that has this op in op_libraries of [tensorflow]" if is_unknown_op else ""
            raise CannotLoad(f"{where} cannot be loaded: {one_line(error)}{hint}") from error

    def _load(self, settings: Mapping[str, Any]) -> "Model":
        source = self._read(settings)
        config = session_config(self._tensorflow, self._gpus, settings["xla"], settings["mixed_precision"])
        if settings["layer_devices"]:
            keep_from_remapper(config)
        session = open_session(config, self._gpus)
        try:
            devices = Devices(device.name for device in session.list_devices())
            graph_def = source.meta_graph.graph_def
            source.notes.extend(place(graph_def, settings, devices, self._tensorflow["allow_soft_placement"]))
            with session.graph.as_default():
                tf.compat.v1.train.import_meta_graph(source.meta_graph)
                source.restore(session)
                session.graph.finalize()
                return Model(settings, session, source)
        except BaseException:
            session.close()
            raise

    def _read(self, settings: Mapping[str, Any]) -> Source:
        path = Path(settings["path"])
        found = format_at(path)
        called, takes = found.value
        if given := [f"`{key}`" for key in ("tags", "inputs", "outputs") if settings[key] and key not in takes]:
            raise CannotLoad(f"it is {called}, which takes no {' and '.join(given)}: leave them out of [[model]]")
        if found is Format.SAVED_MODEL:
            return read_saved_model(path, settings["tags"] or ())
        if found is Format.KERAS:
            return read_keras(path, self._state)
        return read_bare_graph(settings, path, found is Format.FROZEN_GRAPH)


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
