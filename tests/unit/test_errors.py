"""The exceptions: what each fault becomes, and whether a retry helps."""

import ast
import copy
import re
from collections.abc import Iterator

import pytest

from docs.markdown import ROOT
from pool import errors
from pool.wire.faults import Fault


@pytest.mark.parametrize("fault", Fault)
def test_every_fault_has_its_exception(fault: Fault) -> None:
    error = errors.from_fault(fault, "as told")
    assert str(error) == "as told"
    assert type(error).__name__ in errors.__all__


def test_the_tree_at_the_top_is_the_one_of_the_classes() -> None:
    drawn = re.findall(r"^ +│?[ │]*[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE)
    assert sorted(drawn) == sorted(set(errors.__all__) - {"PoolError", "from_fault"})
    retried = re.findall(r"(\w+)  .*\(retry helps", errors.__doc__ or "")
    classes = [getattr(errors, name) for name in drawn]
    assert sorted(retried) == sorted(kind.__name__ for kind in classes if kind.retryable)


def test_overloaded_says_when_to_come_again() -> None:
    error = errors.from_fault(Fault.OVERLOADED, "full", 0.25)
    assert isinstance(error, errors.Overloaded)
    assert str(error) == "full; try again in 0.25 s"
    again = copy.copy(error)  # by the same way as pickle, with which a process pool hands it on
    assert (str(again), again.retry_after) == (str(error), 0.25)
    assert errors.Overloaded("full").retry_after is None
    assert str(errors.Overloaded("full", 612.0)) == "full; try again in 610 s"


def test_a_quarantined_job_is_its_own_fault() -> None:
    error = errors.from_fault(Fault.QUARANTINED, "it killed 2 workers")
    assert isinstance(error, errors.Quarantined)
    assert not error.retryable
    assert error.blame == "the job"


def test_a_stateful_models_job_is_not_worth_a_retry() -> None:
    assert errors.from_fault(Fault.WORKER_LOST, "gone").retryable
    assert not errors.from_fault(Fault.STATEFUL_WORKER_LOST, "gone").retryable


@pytest.mark.parametrize(
    ("kind", "python"),
    [
        (errors.InvalidInput, ValueError),
        (errors.ModelNotFound, LookupError),
        (errors.DeadlineExceeded, TimeoutError),
        (errors.PoolUnreachable, ConnectionError),
        (errors.InvalidState, RuntimeError),
        (errors.NotAllowed, PermissionError),
        (errors.InvalidConfig, ValueError),
    ],
)
def test_pythons_own_clause_catches_it_and_its_text_stays(
    kind: type[errors.PoolError], python: type[Exception]
) -> None:
    with pytest.raises(python, match=r"^as told$") as caught:
        raise kind("as told")
    assert isinstance(caught.value, errors.PoolError)
    assert str(copy.copy(caught.value)) == "as told"


def _made(tree: ast.AST) -> Iterator[int]:
    """The lines where a bare `PoolError` is made, or chosen as the class of one."""
    for node in ast.walk(tree):
        chosen = {ast.Call: ("func",), ast.IfExp: ("body", "orelse"), ast.Assign: ("value",), ast.Raise: ("exc",)}
        for place in chosen.get(type(node), ()):
            found = getattr(node, place)
            if "PoolError" in (getattr(found, "id", ""), getattr(found, "attr", "")):
                yield node.lineno  # type: ignore[attr-defined]  # all of these have one


def test_nothing_makes_a_bare_one() -> None:
    assert [*_made(ast.parse("raise PoolError('no')"))], "it would be seen"
    assert [*_made(ast.parse("kind = InvalidConfig if status == 2 else errors.PoolError"))]
    files = [path for room in ("pool", "workers") for path in (ROOT / room).rglob("*.py")]
    assert len(files) > 200
    assert not [f"{path}:{line}" for path in files for line in _made(ast.parse(path.read_text(encoding="utf-8")))]
