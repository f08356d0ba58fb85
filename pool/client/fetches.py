"""What `Session.run` is asked for, in whatever it is nested, and what it is fed, as names."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Fetches", "flat_feeds", "name_of"]

_Build = Callable[[Mapping[str, Any]], Any]


class Fetches:
    """`names`: of tensors and operations, each once, in the order in which they came.

    Takes a name, lists, tuples, named tuples, mappings and attrs classes of what it takes, and objects that have a
    name, such as tensors of a graph that the caller has. Raises `TypeError` for anything else, as TensorFlow does.
    """

    def __init__(self, fetches: object) -> None:
        self._names: dict[str, None] = {}
        self._build = self._builder(fetches)
        self.names = tuple(self._names)

    def built(self, values: Mapping[str, Any]) -> Any:
        """The values in the places of their names; None where there is none, which is an operation's."""
        return self._build(values)

    def _builder(self, fetch: Any) -> _Build:
        if fetch is None:
            raise TypeError('Argument `fetch` = None has invalid type "NoneType". Cannot be None')
        if isinstance(fetch, list | tuple):
            return _sequence_builder(type(fetch), [self._builder(each) for each in fetch])
        if isinstance(fetch, Mapping):
            return _mapping_builder(fetch, [self._builder(each) for each in fetch.values()])
        attributes = getattr(type(fetch), "__attrs_attrs__", None)
        if attributes is not None:
            members = [self._builder(getattr(fetch, attribute.name)) for attribute in attributes]
            return lambda values: type(fetch)(*[member(values) for member in members])
        name = name_of(fetch)
        if name is None:
            kind = type(fetch).__name__
            raise TypeError(
                f'Argument `fetch` = {fetch} has invalid type "{kind}" must be a string or Tensor.'
                f" (Can not convert a {kind} into a Tensor or Operation.)"
            )
        self._names[name] = None
        return lambda values: values.get(name)


def name_of(element: object) -> str | None:
    """Of a name itself, or of what has one; a variable is named by what reads it.

    None of what is several tensors, such as `tf.IndexedSlices`, whatever its name: they are fetched one by one.
    """
    if hasattr(element, "indices") and hasattr(element, "values"):
        return None
    convert = getattr(element, "_as_graph_element", None)
    if callable(convert):
        element = convert()
    name = element.decode() if isinstance(element, bytes) else element
    name = name if isinstance(name, str) else getattr(name, "name", None)
    return name if isinstance(name, str) else None


def flat_feeds(feed_dict: object) -> Iterator[tuple[str, object]]:
    """The names that are fed, and their values; keys may be nested, if their values are nested alike.

    Raises `TypeError` or `ValueError`, as TensorFlow does.
    """
    if feed_dict is None:
        return
    if not isinstance(feed_dict, Mapping):
        raise TypeError(
            f"'feed_dict' must be a dictionary or mapping, not the {type(feed_dict).__name__} {feed_dict!r}"
        )
    for key, value in feed_dict.items():
        for name, each in _paired(key, value):
            found = name_of(name)
            if found is None:
                kind = type(name).__name__
                raise TypeError(f"Cannot interpret feed_dict key as Tensor: Can not convert a {kind} into a Tensor.")
            yield found, each


def _paired(key: object, value: Any) -> Iterator[tuple[object, object]]:
    if not isinstance(key, tuple):
        yield key, value
        return
    if not isinstance(value, Sequence) or len(value) != len(key):
        raise ValueError(f"Could not flatten dictionary: key {key!r} and value {value!r} have not the same structure")
    for one, other in zip(key, value, strict=True):
        yield from _paired(one, other)


def _sequence_builder(kind: type, members: Sequence[_Build]) -> _Build:
    def build(values: Mapping[str, Any]) -> Any:
        built = [member(values) for member in members]
        if issubclass(kind, list):
            return built
        return tuple(built) if kind is tuple else kind(*built)

    return build


def _mapping_builder(fetch: Mapping[Any, Any], members: Sequence[_Build]) -> _Build:
    keys = tuple(fetch)

    def build(values: Mapping[str, Any]) -> Any:
        built = [(key, member(values)) for key, member in zip(keys, members, strict=True)]
        if isinstance(fetch, defaultdict):
            return defaultdict(fetch.default_factory, built)
        return type(fetch)(built)  # type: ignore[call-arg]  # as TensorFlow makes one

    return build
