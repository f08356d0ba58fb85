"""`AsyncClient` is a `Client` to whoever knows the one: the same methods, with the same arguments."""

import inspect

import pytest

from pool import AsyncClient, Client


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def arguments(kind: type, method: str) -> list[inspect.Parameter]:
    return list(inspect.signature(getattr(kind, method)).parameters.values())


METHODS = sorted(name for name in public(Client) if callable(getattr(Client, name)))


def test_both_have_the_same_public_names() -> None:
    assert len(METHODS) > 15
    assert public(AsyncClient) == public(Client)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_the_same_arguments(method: str) -> None:
    assert arguments(AsyncClient, method) == arguments(Client, method)


def test_both_are_made_with_the_same_arguments() -> None:
    """But for `spin_us`: whoever polls a socket holds up the other tasks of the loop."""
    made = [each for each in arguments(Client, "__init__") if each.name != "spin_us"]
    assert arguments(AsyncClient, "__init__") == made
