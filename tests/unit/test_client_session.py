"""What a `RemoteSession` understands before it asks the pool: structures, feeds, options."""

import collections
from typing import Any, NamedTuple

import pytest

from pool import Client, RemoteSession, errors
from pool.client.fetches import Fetches, flat_feeds
from pool.client.session_steps import run_options


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return "<named>"


class Variable:
    """As a resource variable: its own name is that of its handle."""

    name = "v:0"

    def _as_graph_element(self) -> Named:
        return Named("v/Read:0")


class Slices(Named):
    indices, values = Named("i:0"), Named("v:0")


class Pair(NamedTuple):
    one: Any
    two: Any


@pytest.mark.parametrize(
    ("fetches", "names"),
    [
        ("a:0", ("a:0",)),
        (b"a:0", ("a:0",)),
        (["a:0", ("b", ["a:0"])], ("a:0", "b")),
        ({"x": "a:0", "y": {"z": "b:0"}}, ("a:0", "b:0")),
        (Pair("a:0", Named("b:0")), ("a:0", "b:0")),
        (Variable(), ("v/Read:0",)),
        ([], ()),
    ],
)
def test_the_names_are_found_in_whatever_they_are_in(fetches: object, names: tuple[str, ...]) -> None:
    assert Fetches(fetches).names == names


def test_values_take_the_places_of_their_names() -> None:
    values = {"a:0": 1, "b:0": 2}
    assert Fetches(Pair("a:0", ["op", ("b:0",)])).built(values) == Pair(1, [None, (2,)])
    ordered = Fetches(collections.OrderedDict(z="a:0", y="b:0")).built(values)
    assert list(ordered.items()) == [("z", 1), ("y", 2)]
    assert type(ordered) is collections.OrderedDict
    fetches: Any = collections.defaultdict(list, {"k": "a:0"})
    defaults = Fetches(fetches).built(values)
    assert defaults["another"] == []


@pytest.mark.parametrize("fetches", [None, 5, [None], {"a": object()}, 1.5, Slices("v:0")])
def test_anything_else_is_no_fetch(fetches: object) -> None:
    with pytest.raises(TypeError, match=r"^Argument `fetch` = .* has invalid type"):
        Fetches(fetches)


def test_feeds_are_named_in_every_way() -> None:
    given = {"a:0": 1, Named("b:0"): 2, ("c:0", ("d:0",)): (3, [4])}
    assert dict(flat_feeds(given)) == {"a:0": 1, "b:0": 2, "c:0": 3, "d:0": 4}
    assert list(flat_feeds(None)) == []


@pytest.mark.parametrize(
    ("feeds", "kind"),
    [([1], TypeError), ("a:0", TypeError), ({5: 1}, TypeError), ({("a:0", "b:0"): 1}, ValueError)],
)
def test_other_feeds_are_refused(feeds: object, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        list(flat_feeds(feeds))


class Options:
    timeout_in_ms = 1500
    trace_level = 1


@pytest.mark.parametrize(
    ("options", "understood"),
    [
        (None, (None, 0)),
        ({}, (None, 0)),
        ({"timeout_in_ms": 0}, (None, 0)),
        ({"timeout_in_ms": 250, "trace_level": 3}, (0.25, 3)),
        (Options(), (1.5, 1)),
    ],
)
def test_options(options: object, understood: tuple[float | None, int]) -> None:
    assert run_options(options) == understood


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (5, TypeError),
        ({"timeout": 1}, ValueError),
        ({"timeout_in_ms": -1}, ValueError),
        ({"timeout_in_ms": float("nan")}, ValueError),
        ({"timeout_in_ms": "1"}, ValueError),
        ({"trace_level": 4}, ValueError),
        ({"trace_level": True}, ValueError),
    ],
)
def test_other_options_are_refused(options: object, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        run_options(options)


def test_a_session_needs_no_pool_until_it_runs() -> None:
    with Client("ipc:///nowhere/p.sock", connect_timeout=0.1) as client:
        session = client.session("m")
        assert isinstance(session, RemoteSession)
        assert session.run([]) == []
        with pytest.raises(errors.PoolUnreachable):
            session.run("a:0")
        with pytest.raises(errors.PoolUnreachable), client.session("m", private=True):
            pass
        session.close()
        session.close()
        with pytest.raises(RuntimeError, match=r"^Attempted to use a closed Session\.$"):
            session.run("a:0")
        with pytest.raises(RuntimeError, match=r"^Attempted to use a closed Session\.$"), session:
            pass


def test_names_that_travel_beside_tensors_are_nobodys() -> None:
    with Client("ipc:///nowhere/p.sock", connect_timeout=0.1) as client:
        session = client.session("m")
        for fetches, feeds in ((":session", None), ("a:0", {":trace_level": 1})):
            with pytest.raises(ValueError, match="refers to a Tensor which does not exist"):
                session.run(fetches, feeds)


def test_what_no_job_can_be_called_is_refused_at_once() -> None:
    with Client("ipc:///nowhere/p.sock") as client:
        with pytest.raises(errors.InvalidInput):
            client.session("m" * 2000)
        with pytest.raises(errors.InvalidInput):
            client.session("m", priority=1000)
