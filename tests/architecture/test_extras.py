"""All extras can be installed into one environment.

That of the tests has all of them but `gpu`, which pulls gigabytes. What `gpu` adds is constrained by nobody else, so it
resolves with whatever is there.
"""

import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
EXTRAS = {name: [Requirement(text) for text in texts] for name, texts in PROJECT["optional-dependencies"].items()}
LEFT_OUT = {"gpu"}


def whole(extra: str) -> Iterator[Requirement]:
    """What it asks for, the extras that it names included."""
    for each in EXTRAS[extra]:
        if each.name == PROJECT["name"]:
            for name in each.extras:
                yield from whole(name)
        else:
            yield each


def requirements(distribution: metadata.Distribution, extra: str = "") -> Iterator[Requirement]:
    for text in distribution.requires or ():
        found = Requirement(text)
        if found.marker is None or found.marker.evaluate({"extra": extra}):
            yield found


def test_the_environment_of_the_tests_has_all_extras_but_one() -> None:
    asked = {str(each) for each in whole("test")}
    for extra in EXTRAS.keys() - LEFT_OUT:
        assert {str(each) for each in whole(extra)} <= asked, extra


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - LEFT_OUT))
def test_what_is_installed_here_is_what_each_extra_asks_for(extra: str) -> None:
    for each in whole(extra):
        assert each.specifier.contains(metadata.version(each.name), prereleases=True), each


def test_nobody_constrains_what_the_extra_for_gpus_adds() -> None:
    plain = {canonicalize_name(each.name) for each in requirements(metadata.distribution("tensorflow"))}
    with_cuda = {canonicalize_name(each.name) for each in requirements(metadata.distribution("tensorflow"), "and-cuda")}
    added = with_cuda - plain
    assert len(added) > 5, "CUDA's libraries"
    added |= {canonicalize_name(each.name) for each in whole("gpu") if not each.extras} - {"pydantic"}
    assert "nvidia-ml-py" in added
    asked = {str(each) for each in whole("gpu") if each.name == "pydantic"}
    assert asked <= {str(each) for each in whole("worker")}, "as in the others"
    for distribution in metadata.distributions():
        others = {canonicalize_name(each.name) for each in requirements(distribution)}
        assert not others & added, distribution.name
