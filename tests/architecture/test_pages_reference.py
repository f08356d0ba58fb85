"""The reference and contributors' pages say what the code has: each of their tables is made from it, or held to it."""

from pathlib import Path

import pytest

from docs.generated import commands, parts, renewed, rows, sections
from docs.markdown import FOLDER
from pool import errors
from pool.cli.failure import NoSlotLeft, OwnFault, exit_status

PAGES = sorted(FOLDER.glob("*.md"))
MADE = [page for page in PAGES if parts(page.read_text())]
WRITE_ANEW = "run `python -m docs.generated` in the folder tests, and fill the empty cells"


def page(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


# --- what is made from the code


def test_these_pages_have_parts_that_are_made() -> None:
    assert {"cli", "configuration", "python", "errors", "states", "wire"} <= {each.stem for each in MADE}


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.name)
def test_a_part_is_what_the_code_has_now(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert renewed(text) == text, WRITE_ANEW


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.name)
def test_each_row_of_a_part_is_explained(path: Path) -> None:
    found = [row for part in parts(path.read_text(encoding="utf-8")).values() for row in rows(part)]
    assert not [row for row in found if not row[-1]], WRITE_ANEW


def test_each_section_of_the_configuration_has_its_keys_there() -> None:
    assert {f"keys-{name}" for name in sections()} == set(parts(page("configuration")))


def test_each_command_has_its_help_on_the_page() -> None:
    found = commands()
    assert len(found) > 15
    for name, command in found.items():
        assert f"## `pool {name}`" in page("cli")
        says_json = any("--json" in parameter.opts for parameter in command.params)
        row = next(row for row in rows(parts(page("cli"))["commands"]) if row[0] == f"`pool {name}`")
        assert row[2] == ("yes" if says_json else "no"), name


def test_each_exit_status_of_a_command_is_told() -> None:
    told = {row[0] for row in rows(page("cli").split("## Exit status")[1].split("##")[0])}
    made = [exit_status(error) for error in (errors.PoolError(), errors.InvalidConfig(), NoSlotLeft(), OwnFault())]
    assert len(set(made)) == len(made)
    assert told == {"0", *map(str, made)}
