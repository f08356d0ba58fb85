"""A drop-in for `tf.Session.run`: what to fetch and feed, by the names in a model's graph. TensorFlow is not needed."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pool.client.inputs import Request, texts
from pool.errors import InvalidInput
from pool.wire.tensors import DTYPE_NAMES, Array


class Session:
    """A model's graph, with the variables that all of the model's jobs share. Made by `Client.session`.

    A run that writes variables needs a model with `stateful = true`; like each of its jobs, it is never run twice.
    """

    def __init__(self, run: Callable[[Request, dict[str, Array], Any], Any], model: str) -> None:
        self._run, self._model = run, model

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        *,
        timeout: float | None = None,
        priority: int = 0,
    ) -> Any:
        """What `tf.Session.run` returns: arrays in the structure of `fetches`, and None for an operation.

        Fetches and the keys of `feed_dict` are names ("x:0" is a tensor, "init" an operation) or objects of
        TensorFlow; fetches may be nested in lists, tuples and mappings. Values are converted as TensorFlow does.
        Raises what `Client.run` raises.
        """
        names: set[str] = set()
        rebuilt(fetches, names.add)
        return self._run(Request(self._model, None, sorted(names), timeout, priority), fed(feed_dict or {}), fetches)


def rebuilt(fetches: Any, of: Callable[[str], Any]) -> Any:
    """A structure with the array of each of its names. Raises `InvalidInput`."""
    if isinstance(fetches, Mapping):
        return {key: rebuilt(each, of) for key, each in fetches.items()}
    if isinstance(fetches, list | tuple):
        values = [rebuilt(each, of) for each in fetches]
        return type(fetches)(*values) if hasattr(fetches, "_fields") else type(fetches)(values)
    array = of(name_of(fetches))
    return array[()] if array is not None and not array.ndim else array  # a scalar is one of numpy's, as TensorFlow's


def name_of(leaf: Any) -> str:
    """Of a tensor, an operation or a variable. Raises `InvalidInput`."""
    if hasattr(leaf, "_as_graph_element"):  # a variable stands for the tensor that reads it
        leaf = leaf._as_graph_element()
    name = getattr(leaf, "name", leaf)
    if not isinstance(name, str) or hasattr(leaf, "dense_shape"):
        hint = "give the names of its parts" if hasattr(leaf, "dense_shape") else "give a name"
        raise InvalidInput(f"{type(leaf).__name__} {name!r:.80} can be neither fetched nor fed: {hint}")
    return name


def fed(feeds: Mapping[Any, Any]) -> dict[str, Array]:
    """Raises `InvalidInput`."""
    arrays: dict[str, Array] = {}
    for key, value in feeds.items():
        name = name_of(key)
        try:
            array = value if isinstance(value, np.ndarray) else np.array(value, object)
            if array.dtype.kind in "OUST":
                is_text = array.dtype != object or (array.size and isinstance(array.flat[0], str | bytes))
                array = texts(array) if is_text else np.asarray(array.tolist())
            arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"the value for {name!r:.80}: {error}") from None
        if arrays[name].dtype not in DTYPE_NAMES:
            raise InvalidInput(f"the value for {name!r:.80}: elements of {array.dtype} cannot be sent")
    return dict(sorted(arrays.items()))
