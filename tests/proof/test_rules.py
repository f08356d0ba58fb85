import pytest

from proof import zoo
from proof.dependent import DEPENDENT
from proof.making import verdicts, why_not

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("name", [*zoo.ARCHITECTURES, *zoo.FUNCTIONS])
def test_independent_models_are_proven(name):
    assert not any(verdicts(zoo.concrete(name)))


@pytest.mark.parametrize("name", DEPENDENT)
def test_a_dependent_graph_is_not_proven(name):
    why = why_not(*DEPENDENT[name])
    assert why
    assert "\n" not in why
