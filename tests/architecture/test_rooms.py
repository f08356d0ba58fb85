"""The house as it is drawn: nothing lies outside of a room, each room has a door, and no arrow runs in a circle."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BESIDE_THE_ROOMS = {"__init__.py", "__main__.py", "endpoint.py", "errors.py", "py.typed"}
DOORS_OF_FILES = {"pool.wire"}  # a message or value each: their names are the protocol's
# As modules: `events.WorkerReady`; the recorder reads and writes all that they name, and a client asks for each record.
VOCABULARY = {"pool.core.actions", "pool.core.events", "pool.core.policy", "pool.core.versions", "pool.wire.records"}
OPEN = {"pool.client.bulk"}  # to the room around it, which numpy must not come into before the first tensor
PREPARED = {"pool.client.payload"}  # by which the load generator prepares inputs once, and not for each job
BACKENDS = {"workers.tf.backend", "workers.stub.backend"}  # imported when the files are known: TensorFlow takes seconds
EXTRAS = {"pool.gateway.main"}  # with packages that only serving needs, and not `pool gateway token`
OF_THE_PACKAGE = "pool"  # whose own names are the client's
LIGHT = {"pool.devices.nvml"}  # which workers read too, and which need nothing else


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for package in ("pool", "workers") for path in (ROOT / package).rglob("*.py")}
PACKAGES = {name for name, path in FILES.items() if path.name == "__init__.py"}
ROOMS = sorted(PACKAGES - {"pool", "workers.tf.demo"})


def imports(name: str, for_types_too: bool = False) -> Iterator[tuple[str, str]]:
    """(module, name) of what is imported when the code runs, not for its types alone."""
    tree = ast.parse(FILES[name].read_text())
    for_types = {
        id(node)
        for test in ast.walk(tree)
        if not for_types_too
        if isinstance(test, ast.If) and isinstance(test.test, ast.Name) and test.test.id == "TYPE_CHECKING"
        for node in ast.walk(test)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in for_types:
            assert not node.level, f"{name}: a relative import"
            assert node.module
            for alias in node.names:
                yield node.module, alias.name


def target(module: str, name: str) -> str:
    """The module that is meant: `from pool.core import events` is about a module, too."""
    return f"{module}.{name}" if f"{module}.{name}" in FILES else module


def room_of(module: str) -> str:
    return module if module in PACKAGES else module.rpartition(".")[0]


def test_each_exception_is_one_of_something_that_is_there() -> None:
    named = DOORS_OF_FILES | VOCABULARY | OPEN | PREPARED | BACKENDS | EXTRAS | LIGHT
    assert named <= FILES.keys()


def test_nothing_lies_beside_the_rooms() -> None:
    lies = {path.name for path in (ROOT / "pool").iterdir() if path.is_file()}
    assert lies == BESIDE_THE_ROOMS


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_opens_with_what_comes_in_what_goes_out_and_what_it_never_does(room: str) -> None:
    said = ast.get_docstring(ast.parse(FILES[room].read_text())) or ""
    assert len(said.split()) >= 25, f"{room}/__init__.py has no paragraph"
    for word in ("come", "go", "never"):
        assert word in said, f"{room}/__init__.py does not say what {word}"


def shown(room: str) -> set[str]:
    """What stands in the list of a door."""
    for node in ast.parse(FILES[room].read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def offences(name: str) -> list[str]:
    """Where it goes into another room without using its door."""
    mine, found = room_of(name), []
    for module, imported in imports(name):
        if not module.startswith(("pool.", "workers.")) or name in PACKAGES & {OF_THE_PACKAGE}:
            continue
        if module in PACKAGES and imported in shown(module):
            continue
        aim = target(module, imported)
        room = room_of(aim)
        above = mine == room or mine.startswith(f"{room}.") or (room in OPEN and room.startswith(mine))
        if above or room in DOORS_OF_FILES or aim in VOCABULARY | BACKENDS | PREPARED | EXTRAS or room == "pool":
            continue
        if aim in LIGHT and mine.startswith("workers"):
            continue
        found.append(f"{name}: from {module} import {imported}")
    return found


def test_other_rooms_are_entered_by_their_doors() -> None:
    """What goes through one stands in its list."""
    assert "\n".join(each for name in FILES for each in offences(name)) == ""


def test_no_import_runs_in_a_circle() -> None:
    """Nor inside of a room. A door is no part of the way: whoever is inside does not need it."""
    follows = {
        name: {
            aim
            for module, imported in imports(name)
            if (aim := target(module, imported)) in FILES and aim != name and not name.startswith(f"{aim}.")
        }
        for name in FILES
    }
    done: set[str] = set()

    def walk(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " → ".join((*way[way.index(name) :], name))
        if name not in done:
            for each in sorted(follows[name]):
                walk(each, (*way, name))
            done.add(name)

    for name in sorted(FILES):
        walk(name, ())


def test_the_plan_knows_nobody_who_asks_it_and_no_type_of_theirs() -> None:
    mine = [name for name in FILES if name.startswith("pool.plan.")]
    known = {(name, target(*each)) for name in mine for each in imports(name, for_types_too=True)}
    assert any(module == "pool.config" for _, module in known), "an import for types alone is seen"
    above = ("pool.serve", "pool.client", "pool.cli", "pool.bench")
    assert not [each for each in known if each[1].startswith(above)]
