"""The reference and contributors' pages say what the code has: each of their tables is made from it, or held to it."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import Any

import msgpack
import pytest

from docs.generated import commands, parts, renewed, rows, sections
from docs.markdown import FOLDER, ROOT
from pool import Client, errors
from pool.cli.failure import NoSlotLeft, OwnFault, exit_status
from pool.core.fleet import SlotState
from pool.wire import records
from pool.wire.codec import unpack
from support.pool_process import pool_process

PAGES = sorted(FOLDER.glob("*.md"))
MADE = [page for page in PAGES if parts(page.read_text())]
WRITE_ANEW = "run `python -m docs.generated` in the folder tests, and fill the empty cells"


def page(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


# --- what is made from the code


def test_these_pages_have_parts_that_are_made() -> None:
    assert {"cli", "configuration", "python", "errors", "states", "wire", "architecture", "contributing"} <= {
        each.stem for each in MADE
    }


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


# --- JSON: what a pool of stub models prints, as the records of the page say

CONFIG = """
[pool]
endpoint = "@endpoint@"
devices = ["cpu"]
[[model]]
name = "echo"
path = "stub:echo"
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with pool_process(CONFIG) as pool, Client(pool.endpoint) as client:
        assert client.run("echo", [[1.0]])
        yield client


KINDS: dict[str, tuple[Any, str, str]] = {
    "record-status": (records.Status, "status", ""),
    "record-models": (tuple[records.Model, ...], "models", ""),
    "record-job": (records.JobHistory, "explain", "1"),
    "Recent": (records.Recent, "explain", ""),
    "SlotHistory": (records.SlotHistory, "explain", "slot:0"),
}


@pytest.mark.parametrize("what", KINDS)
def test_an_answer_has_each_field_that_is_told_and_no_other(client: Client, what: str) -> None:
    kind, question, about = KINDS[what]
    answer = client._connected().ask(question, about, 20.0)
    found = unpack(kind, answer)
    plain = [each.to_dict() for each in found] if isinstance(found, tuple) else found.to_dict()
    assert plain == msgpack.unpackb(answer), "as it came"


def test_each_field_of_a_crash_report_is_told() -> None:
    """They are the keys of one dictionary, made in `pool/recorder/recorder.py`, and what the pool says of itself."""
    tree = ast.parse((ROOT / "pool" / "recorder" / "recorder.py").read_text())
    made: set[str] = {"pool", "instance", "endpoint"}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name in ("_died", "_sight"):
            largest = max(
                (node for node in ast.walk(function) if isinstance(node, ast.Dict)), key=lambda node: len(node.keys)
            )
            made |= {key.value for key in largest.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    assert len(made) > 15
    assert {field.name for field in fields(records.CrashReport)} == made


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


def _chosen() -> set[str]:
    """The texts of files that choose an event's name before they log it."""
    found: set[str] = set()
    for path in (ROOT / "pool").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "about(event" in text:
            nodes = ast.walk(ast.parse(text))
            found |= {each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return found


def test_each_log_event_is_told_with_its_fields() -> None:
    logged = _logged()
    assert len(logged) > 40
    told = {
        row[0].strip("`"): set(re.findall(r"`(\w+)`", row[2])) for row in rows(page("json").split("## Log events")[1])
    }
    assert set(logged) - set(told) == set()
    assert set(told) - set(logged) <= _chosen(), "events that nothing logs"
    for event, named in logged.items():
        assert named <= told[event], event


def test_each_state_that_is_logged_is_told() -> None:
    for state in SlotState:
        assert f"`slot_{state.name.lower()}`" in page("json")
    source = (ROOT / "pool" / "serve" / "slot_log.py").read_text()
    for event in re.findall(r'event(?:, \w+)* = "(\w+)"', source):
        assert f"`{event}`" in page("json"), event


# --- the files and functions that a page names

_FILE = re.compile(r"`((?:pool|workers|tests)/[\w/.]*)`")
_ROW_FILE = re.compile(r"`([\w/]+\.py)`")
STEPS = [
    (row_file[1], function)
    for row in rows((FOLDER / "architecture.md").read_text(encoding="utf-8"))
    if (row_file := next(filter(None, map(_ROW_FILE.fullmatch, row)), None)) is not None
    for function in re.findall(r"`([\w.]+)`", row[[bool(_ROW_FILE.fullmatch(cell)) for cell in row].index(True) + 1])
]


def _defined(source: str) -> set[str]:
    """Functions and classes, and methods with their class."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def test_the_way_of_a_job_has_its_steps() -> None:
    assert len(STEPS) > 50
    assert {file.split("/")[0] for file, _ in STEPS} == {"pool", "workers"}


@pytest.mark.parametrize(("file", "function"), STEPS, ids=lambda each: each.replace("/", "."))
def test_a_step_is_in_the_file_that_the_page_names(file: str, function: str) -> None:
    assert function in _defined((ROOT / file).read_text(encoding="utf-8"))


def test_a_job_takes_the_steps_of_the_client_in_this_order(client: Client) -> None:
    """One `run`, watched in the caller's thread."""
    seen: list[tuple[str, str]] = []
    installed = Path(errors.__file__).parents[1]  # as it runs: the tree, or what was installed from it

    def watch(frame: FrameType, what: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if what == "call" and file.is_relative_to(installed / "pool"):
            seen.append((str(file.relative_to(installed)), frame.f_code.co_qualname))

    told = [
        (row[2].strip("`"), function)
        for row in rows(page("architecture"))
        if row[1] == "client"
        for function in re.findall(r"`([\w.]+)`", row[3])
    ]
    assert len(told) > 12
    client.run("echo", [[1.0]])
    sys.setprofile(watch)
    client.run("echo", [[1.0]])
    sys.setprofile(None)
    assert [step for step in dict.fromkeys(seen) if step in told] == told


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_each_file_that_a_page_names_is_there(path: Path) -> None:
    for name in _FILE.findall(path.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name


def test_each_room_is_on_the_page_and_each_on_the_page_is_a_room() -> None:
    told = {row[0].strip("`") for row in rows(page("architecture").split("## Rooms")[1])}
    rooms = {
        str(init.parent.relative_to(ROOT)) for top in ("pool", "workers") for init in (ROOT / top).rglob("__init__.py")
    }
    assert told == rooms - {"pool", "workers/tf/demo"}


# --- words and decisions


def test_each_decision_has_its_five_lines() -> None:
    decisions = page("decisions").split("\n### ")[1:]
    assert len(decisions) > 60
    for decision in decisions:
        lines = [line for line in decision.split("\n## ")[0].splitlines() if line]
        parts_of_it = [re.match(r"- \*\*(\w+):\*\* \S", line) for line in lines[1:]]
        assert [part and part[1] for part in parts_of_it] == ["Context", "Choice", "Rejected", "Consequence"], lines[0]
