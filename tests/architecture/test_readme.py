"""README's two commands are those that CI runs, and nothing lies beside the fixed top level."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CI = (ROOT / ".ci" / "run").read_text()


def ci_command(name: str) -> str:
    found = re.search(rf"^# readme: {name}\n(.*)\n# end$", CI, re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("name", ["start", "test"])
def test_the_commands_are_the_ones_that_ci_runs(name: str) -> None:
    assert f"\n```sh\n{ci_command(name)}\n```\n" in README


def test_no_file_stands_beside_the_fixed_top_level() -> None:
    allowed = {"pyproject.toml", "pool", "workers", "tests", "config.toml", "README.md", "LICENSE"}
    built = {"build", "tf_worker_pool.egg-info"}
    found = {entry.name for entry in ROOT.iterdir() if not entry.name.startswith(".")}
    assert found - built <= allowed
