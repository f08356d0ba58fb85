from importlib import resources

import pytest

from proof import zoo
from proof.dependent import DEPENDENT
from proof.making import verdicts, why_not

pytestmark = pytest.mark.tensorflow
PAGE = resources.files("pool").joinpath("docs/batching.md").read_text()
LONG = [pytest.param(name, marks=pytest.mark.long) for name in zoo.LARGE]


@pytest.mark.parametrize("name", [*sorted(zoo.ARCHITECTURES.keys() - zoo.LARGE), *zoo.FUNCTIONS, *LONG])
def test_independent_models_are_proven(name):
    assert not any(verdicts(zoo.concrete(name)))
    assert f"{name}," in PAGE or name not in {*zoo.APPLICATIONS, *zoo.LARGE}


@pytest.mark.parametrize("op", zoo.STOPPED)
def test_the_page_names_what_stops_a_proof(op):
    assert why_not(*zoo.STOPPED[op]).startswith(f"{op} ")
    assert f"`{op}`" in PAGE


@pytest.mark.parametrize("name", DEPENDENT)
def test_a_dependent_graph_is_not_proven(name):
    why = why_not(*DEPENDENT[name])
    assert why
    assert "\n" not in why
