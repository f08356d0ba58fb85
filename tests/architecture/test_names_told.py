"""What the documentation, the messages and the help texts name exists: each command, option and key of a configuration.

That all that exists is documented is for the tests of the generated pages.
"""

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from pool.cli import pool
from pool.config import Settings
from pool.config.client import ClientSection
from pool.config.gateway import GatewaySection
from pool.config.security import SecuritySection
from pool.config.settings import ModelSection
from pool.config.tensorflow import DeviceSection

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "config.toml", *sorted((ROOT / "pool" / "docs").glob("**/*.md"))]
CODE = sorted(path for room in ("pool", "workers") for path in (ROOT / room).rglob("*.py"))

COMMAND = re.compile(r"(?:`|^    (?:\$ )?)pool ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?([^`|\n]*)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9_-]*")
DECLARED = re.compile(r"(?:add_argument|option)\(\s*\"(--[a-z][a-z0-9-]*)\"")
# In prose only these are keys for certain: `[pool] lanes`, [pool] lanes = 2, [pool] min_ready.
KEY = re.compile(r"\[+(\w+)\]+ (?:([a-z_]+)(?=`| =)|([a-z]+_[a-z_]*[a-z])(?![\w{]))")
KEY_IN = re.compile(r"`([a-z_]+)(?: = [^`]*)?` (?:in|of) `\[+(\w+)\]+`")
ROW = re.compile(r"^\| (?:`\[+(\w+)\]+` )?\| ((?:`[a-z_]+`(?:, )?)+) \|")
TOML = re.compile(r"```toml\n(.*?)```", re.DOTALL)

# What a text may name that is none of the pool's: whose it is. The last ones are refused with what they are called now.
FOREIGN = {
    "--tf_xla_cpu_global_jit": "TensorFlow",
    "--now": "systemctl",
    "--check": "ruff",
    **dict.fromkeys(("--head", "--address", "--labels", "--id"), "ray"),
    **dict.fromkeys(("--upgrade", "--no-deps"), "pip"),
}


def commands(group: click.Group = pool, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


def options_of(command: click.Command) -> set[str]:
    found = (
        command.params
    )  # without click's own: asking for those settles how `--help` is written, for all who ask later
    return {"--help", *(name for option in found for name in (*option.opts, *option.secondary_opts))}


OPTIONS = {path: options_of(command) for path, command in commands()}
# Those of the processes that the pool starts, and of the programs of the tests.
SCRIPTS = [*CODE, *sorted((ROOT / "tests" / "benchmarks").rglob("*.py"))]
OTHERS = {name for file in SCRIPTS for name in DECLARED.findall(file.read_text())}

MANY: dict[str, type[BaseModel]] = {
    "client": ClientSection,
    "device": DeviceSection,
    "gateway": GatewaySection,
    "model": ModelSection,
    "security": SecuritySection,
}
KEYS = {
    name: set((MANY.get(name) or type(field.default)).model_fields) for name, field in Settings.model_fields.items()
}


def texts() -> Iterator[tuple[str, str]]:
    """Where it stands, and what: each line of a page, and each string of the code, its docstrings too."""
    for page in PAGES:
        for number, line in enumerate(page.read_text().splitlines(), 1):
            yield f"{page.relative_to(ROOT)}:{number}", line
    for file in CODE:
        yield from (
            (f"{file.relative_to(ROOT)}:{number}", text) for number, text in strings(ast.parse(file.read_text()))
        )


def strings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """What is filled in is {}."""
    if isinstance(node, ast.JoinedStr):
        parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        yield node.lineno, "".join(parts)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from strings(part.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from strings(child)


def wrong_commands(text: str) -> Iterator[str]:
    """Commands that there are not, and options that the command beside them does not have."""
    for name, sub, rest in COMMAND.findall(text):
        path = next((path for path in ((name, sub), (name,)) if path in OPTIONS), None)
        if path is None:
            yield f"pool {name}"
            continue
        yield from (f"pool {' '.join(path)} {option}" for option in OPTION.findall(rest) if option not in OPTIONS[path])


def wrong_options(text: str) -> Iterator[str]:
    known = OTHERS.union(FOREIGN, *OPTIONS.values(), ["--help", "--version"])
    yield from (option for option in OPTION.findall(text) if option not in known)


def wrong_keys(text: str) -> Iterator[str]:
    found = [(section, plain or long) for section, plain, long in KEY.findall(text)]
    found += [(section, key) for key, section in KEY_IN.findall(text)]
    yield from (f"[{section}] {key}" for section, key in found if key not in KEYS.get(section, ()))


def wrong_rows(page: str) -> Iterator[str]:
    """Of a table that begins each section's rows with its name, as the table of the keys does."""
    section = ""
    for line in page.splitlines():
        row = ROW.match(line)
        if not line.startswith("|"):
            section = ""
        elif row and (row[1] or section):
            section = row[1] or section
            yield from (
                f"[{section}] {key}" for key in re.findall(r"`(\w+)`", row[2]) if key not in KEYS.get(section, ())
            )


def wrong_blocks(page: str) -> Iterator[str]:
    for block in TOML.findall(page):
        for section, value in tomllib.loads(block).items():
            tables = value if isinstance(value, list) else [value]
            for table in tables:
                told = table if isinstance(table, dict) else {}
                yield from (f"[{section}] {key}" for key in told if key not in KEYS.get(section, ()))
                if section not in KEYS:
                    yield section


@pytest.fixture(scope="module")
def told() -> list[tuple[str, str]]:
    return list(texts())


Wrong = Callable[[str], Iterator[str]]


@pytest.mark.parametrize("wrong", [wrong_commands, wrong_options, wrong_keys])
def test_what_a_text_names_exists(told: list[tuple[str, str]], wrong: Wrong) -> None:
    """But for the table of former names, and the page that shows it."""
    former = ("pool/config/renamed.py", "pool/docs/words.md") if wrong is wrong_keys else ()
    assert [
        f"{where}: there is no {name}" for where, text in told if not where.startswith(former) for name in wrong(text)
    ] == []


@pytest.mark.parametrize("wrong", [wrong_rows, wrong_blocks])
def test_what_a_page_names_exists(wrong: Wrong) -> None:
    pages = [page for page in PAGES if page.suffix == ".md"]
    assert [f"{page.name}: there is no {name}" for page in pages for name in wrong(page.read_text())] == []


@pytest.mark.parametrize(
    ("wrong", "text", "names"),
    [
        (wrong_commands, "`pool stat`, or `pool status --jsn`", ["pool stat", "pool status --jsn"]),
        (wrong_commands, "    $ pool systemd install --nothing", ["pool systemd install --nothing"]),
        (wrong_commands, "`pool status --json`; a pool that runs", []),
        (wrong_options, "with --jsn, --json", ["--jsn"]),
        (wrong_keys, "([health] warm_timeout may be too short); `[pool] lines`; [queue] jobs = 2", None),
        (wrong_keys, "`sucessor` in `[restart]`, `lanes = 2` in `[pool]`", ["[restart] sucessor"]),
        (wrong_keys, "the [pool] runs; [queue] max_jobs; [queue] client_max_{}", []),
        (wrong_rows, "| `[pool]` | `lanes` | 2 |\n| | `lines` | 3 |\n\n| | `states` | 4 |", ["[pool] lines"]),
        (wrong_blocks, "```toml\n[pool]\nlines = 2\n```", ["[pool] lines"]),
    ],
)
def test_what_does_not_exist_is_found(wrong: Wrong, text: str, names: list[str] | None) -> None:
    all_three = ["[health] warm_timeout", "[pool] lines", "[queue] jobs"]
    assert list(wrong(text)) == (all_three if names is None else names)


def test_enough_is_read_to_find_anything(told: list[tuple[str, str]]) -> None:
    assert {"start", "bench"} <= {name for name, *_ in OPTIONS}
    assert {"model", "device", "pool"} <= set(KEYS)
    found = [sum(len(pattern.findall(text)) for _, text in told) for pattern in (COMMAND, OPTION, KEY)]
    assert min(found) >= 10, found


def test_nothing_is_excepted_that_no_text_names(told: list[tuple[str, str]]) -> None:
    assert {name for _, text in told for name in OPTION.findall(text)} >= FOREIGN.keys()
