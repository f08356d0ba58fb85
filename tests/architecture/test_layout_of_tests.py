"""What several folders of tests share lies in `support`; all else lies beside who uses it."""

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FOLDERS = {path.name for path in TESTS.iterdir() if path.is_dir() and not path.name.startswith((".", "__"))}
SHARED = {"support"}
# Programs of their own, which tests run or ask. What they are is on the contributors' page.
PROGRAMS = {"attacker", "benchmarks", "docs", "golden", "simulation", "walks"}


@cache
def imported(source: str) -> set[str]:
    """The modules' names, whole."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def strays(folder: str, source: str) -> set[str]:
    """What a file of the folder imports from where it should not: another folder's own things, or a file of tests."""
    ours = {name for name in imported(source) if name.partition(".")[0] in FOLDERS}
    others = {name for name in ours if name.partition(".")[0] not in SHARED | PROGRAMS | {folder}}
    return others | {name for name in ours if name.rpartition(".")[2].startswith("test_")}


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_a_file_imports_from_its_own_folder_and_from_what_is_shared(folder: str) -> None:
    files = list((TESTS / folder).rglob("*.py"))
    assert files
    assert {str(path): found for path in files if (found := strays(folder, path.read_text()))} == {}


def test_no_file_but_pytests_own_lies_beside_the_folders() -> None:
    assert [path.name for path in TESTS.iterdir() if path.is_file()] == ["conftest.py"]


def test_what_is_shared_is_used_by_more_than_one_folder() -> None:
    users: dict[str, set[str]] = {path.stem: set() for path in (TESTS / "support").glob("*.py")}
    assert users
    for path in TESTS.rglob("*.py"):
        for name in imported(path.read_text()):
            package, _, module = name.partition(".")
            if package == "support" and module in users:
                users[module].add(path.relative_to(TESTS).parts[0])
    assert {name: folders for name, folders in users.items() if len(folders) < 2} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from support.processes import eventually", set()),
        ("from faults import crash_matrix", {"faults", "faults.crash_matrix"}),
        ("import faults.crash_matrix as matrix", {"faults.crash_matrix"}),
        ("def late():\n    from unit.test_runner import floats", {"unit.test_runner"}),
    ],
)
def test_a_stray_import_is_found(source: str, found: set[str]) -> None:
    assert strays("unit", source) >= found
    assert bool(strays("unit", source)) == bool(found)
