"""Each block of code in README and the pages runs, or says why not. One pool serves all of them."""

import ast
import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.markdown import PAGES, ROOT, Block, blocks
from pool import Client
from pool.config import demo_folder, parse_settings
from support.pool_process import STUBS, PoolProcess, pool_process

pytestmark = pytest.mark.pages

BLOCKS = [block for page in PAGES for block in blocks(page)]
BLOCK_S = 60
LANGUAGES = {"python", "toml", "sh", "console", "json", "text"}

CONFIG = f"""
[pool]
devices = ["cpu", "cpu"]
[[model]]
name = "digits"
path = "{demo_folder() / "digits"}"
{STUBS}"""


def those(*languages: str) -> Any:
    found = [block for block in BLOCKS if block.language in languages and "not run" not in block.notes]
    return pytest.mark.parametrize("block", found, ids=map(str, found))


def test_each_block_says_what_it_is() -> None:
    assert BLOCKS
    assert not [str(block) for block in BLOCKS if block.language not in LANGUAGES]


def test_each_note_is_understood() -> None:
    assert {name for block in BLOCKS for name in block.notes} <= {"not run", "setup", "then"}


def test_a_block_that_is_not_run_has_a_reason() -> None:
    for block in BLOCKS:
        if "not run" in block.notes:
            assert len(block.notes["not run"].split()) >= 3, str(block)


@pytest.fixture(scope="module")
def served() -> Iterator[PoolProcess]:
    """The pool that a reader has: at the default endpoint of this user."""
    # The path is short, so that what commands print about it fits into 80 columns.
    with tempfile.TemporaryDirectory(prefix="pt-") as runtime, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", runtime)
        with pool_process(CONFIG) as pool:
            yield pool


@pytest.fixture
def folder(served: PoolProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a reader may have it: a configuration, an input, the demo's model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(served.state))
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "digits").symlink_to(demo_folder() / "digits")
    (tmp_path / "seven.json").symlink_to(demo_folder() / "seven.json")
    (tmp_path / "workers").symlink_to(ROOT / "workers")  # as in a clone
    (tmp_path / "config.toml").write_text('[[model]]\nname = "digits"\npath = "models/digits"\n')
    return tmp_path


@pytest.mark.tensorflow
@those("python")
def test_python(block: Block, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": str(block), "__file__": str(folder / "block.py")}
    for text in (block.notes.get("setup", ""), block.text, block.notes.get("then", "")):
        code = compile(text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, names))
        else:
            exec(code, names)
    if isinstance(client := names.get("client"), Client):
        client.close()


@those("toml")
def test_toml(block: Block, tmp_path: Path) -> None:
    """The parser of the configuration takes it."""
    assert parse_settings(tomllib.loads(block.text), str(block), tmp_path)


@those("json")
def test_json(block: Block) -> None:
    assert json.loads(block.text)


def _run(script: str, folder: Path) -> str:
    environ = dict(os.environ)  # not the process's own, in which readline, which pytest imports, has put COLUMNS
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=BLOCK_S)
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.tensorflow
@those("sh")
def test_sh(block: Block, folder: Path) -> None:
    _run(f"{block.notes.get('setup', '')}\n{block.text}", folder)


@pytest.mark.tensorflow
@those("console")
def test_console(block: Block, folder: Path) -> None:
    """Each line after a command stands in its output, in this order; `…` is anything."""
    _run(block.notes.get("setup", ""), folder)
    for text in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = text.partition("\n")
        printed = _run(command, folder)
        out = iter([" ".join(line.split()) for line in printed.splitlines()])
        for line in filter(None, map(str.strip, expected.splitlines())):
            pattern = ".*".join(map(re.escape, " ".join(line.split()).split("…")))
            assert any(re.fullmatch(pattern, found) for found in out), f"no line is {line!r}:\n{printed}"
