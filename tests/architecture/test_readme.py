"""The README says what is so: its commands are those that CI runs, and nothing else lies beside it."""

import re

import pytest

from docs.markdown import README, ROOT, blocks

CI = (ROOT / ".ci" / "run").read_text()


def ci_command(name: str) -> str:
    found = re.search(rf"^# readme: {name}\n(.*)\n# end$", CI, re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("name", ["start", "test"])
def test_the_commands_are_the_ones_that_ci_runs(name: str) -> None:
    assert f"{ci_command(name)}\n" in [block.text for block in blocks(README)]


def test_no_file_stands_beside_the_fixed_top_level() -> None:
    allowed = {"pyproject.toml", "pool", "workers", "tests", "config.toml", "README.md", "LICENSE"}
    built = {"build", "tf_worker_pool.egg-info"}
    found = {entry.name for entry in ROOT.iterdir() if not entry.name.startswith(".")}
    assert found - built <= allowed
