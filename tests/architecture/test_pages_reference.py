"""The reference and contributors' pages say what the code has: each of their tables is made from it, or held to it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.generated import commands, parts, renewed, rows, sections
from docs.markdown import FOLDER, ROOT
from harness import pool_process
from pool import Client, errors
from pool.cli.failure import NoSlotLeft, OwnFault, exit_status
from pool.core.fleet import SlotState

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


# --- JSON: what a pool of stub models prints, field by field

OPEN = {"refused", "dropped", "answered", "signatures", "scheduling", "dependent", "amiss", "batches", "timeline"}
"""Their keys are the data's, or stand elsewhere on the page."""
CONFIG = """
[pool]
endpoint = "@endpoint@"
devices = ["cpu"]
[[model]]
name = "echo"
path = "stub:echo"
"""


@pytest.fixture(scope="module")
def asked() -> Iterator[dict[str, Any]]:
    with pool_process(CONFIG) as pool, Client(pool.endpoint) as client:
        assert client.run("echo", [[1.0]])
        found = {"status": client.status(), "models": client.models()}
        job = found["status"]["answered"]
        assert job, "nothing was answered"
        yield {**found, "explain": client.explain(client.explain()["jobs"][0]["job"])}


def _fields(value: object, path: str = "") -> Iterator[str]:
    """Each field's path; `[]` stands for an item of a list."""
    if isinstance(value, dict):
        for name, below in value.items():
            here = f"{path}.{name}" if path else name
            yield here
            if name not in OPEN and not (name == "versions" and "[]" in here):
                yield from _fields(below, here)
    elif isinstance(value, list) and value:
        yield from _fields(value[0], f"{path}[]")


def _empty(value: object, path: str = "") -> Iterator[str]:
    """The paths of what has no fields now, but may have some."""
    if value is None or value == []:
        yield path
    elif isinstance(value, dict):
        for name, below in value.items():
            yield from _empty(below, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        yield from _empty(value[0], f"{path}[]")


def _told(heading: str) -> set[str]:
    section = page("json").split(f"## `{heading}")[1].split("\n## ")[0].split("| field of a crash report")[0]
    return {row[0].strip("`") for row in rows(section)}


@pytest.mark.parametrize("what", ["status", "models", "explain"])
def test_each_field_is_told_and_each_told_field_is_there(asked: dict[str, Any], what: str) -> None:
    said, told = set(_fields(asked[what])), _told(f"pool {what} --json")
    assert len(said) > 10
    assert said - told == set()
    empty = set(_empty(asked[what]))
    assert not {field for field in told - said if field.rpartition(".")[0].removesuffix("[]") not in empty}


def test_each_field_of_a_crash_report_is_told() -> None:
    """They are the keys of one dictionary, made in `pool/recorder/recorder.py`."""
    tree = ast.parse((ROOT / "pool" / "recorder" / "recorder.py").read_text())
    made: set[str] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name in ("_died", "_sight"):
            largest = max(
                (node for node in ast.walk(function) if isinstance(node, ast.Dict)), key=lambda node: len(node.keys)
            )
            made |= {key.value for key in largest.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    assert len(made) > 15
    table = page("json").split("| field of a crash report")[1].split("\n\n")[0]
    assert {row[0].strip("`") for row in rows(f"| field{table}")} == made


# --- the log


def _logged() -> dict[str, set[str]]:
    """Each event that the code names in full, with its fields."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "pool").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute) or not node.args:
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            event = node.args[0]
            if name in ("about", "_about") and isinstance(event, ast.Constant) and isinstance(event.value, str):
                found.setdefault(event.value, set()).update(each.arg for each in node.keywords if each.arg)
    return found


def test_each_log_event_is_told_with_its_fields() -> None:
    logged = _logged()
    assert len(logged) > 40
    told = {
        row[0].strip("`"): set(re.findall(r"`(\w+)`", row[2])) for row in rows(page("json").split("## Log events")[1])
    }
    assert set(told) == set(logged)
    for event, fields in logged.items():
        assert fields <= told[event], event


def test_each_state_that_is_logged_is_told() -> None:
    for state in SlotState:
        assert f"`slot_{state.name.lower()}`" in page("json")
    source = (ROOT / "pool" / "serve" / "slot_log.py").read_text()
    for event in re.findall(r'event(?:, \w+)* = "(\w+)"', source):
        assert f"`{event}`" in page("json"), event
