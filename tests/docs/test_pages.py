"""Each block of code in README and the pages runs, or says why not. One pool with the demo model serves all of them.

WRITE_PAGES=1 in the environment writes what is generated of the pages, instead of comparing it.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from pool import Client
from pool.config import LISTS, Config, load
from pool.config.sections import SECTIONS
from support.pools import RunningPool, pool_in

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "pool" / "docs").glob("*.md")))
BLOCK = re.compile(r"(?:^<!-- (?P<note>.*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https:)([^)#]*)(?:#([^)]+))?\)")
HEADING = re.compile(r"^##+ (.*)$", re.MULTILINE)
MOST_PAGES, MOST_LINES = 14, 2000
CONFIG = '[pool]\ndevices = ["cpu"]\n'
BY_CI = ("start", "test")  # `.ci/run` runs these


class Block(NamedTuple):
    where: str
    note: str
    language: str
    text: str


def blocks(*languages: str) -> list[Block]:
    return [
        Block(f"{page.name}:{text.count(chr(10), 0, match.start()) + 1}", match["note"] or "", *match.group(2, 3))
        for page in PAGES
        for text in [page.read_text("utf-8")]
        for match in BLOCK.finditer(text)
        if match["language"] in languages
    ]


def run(*languages: str) -> pytest.MarkDecorator:
    those = [block for block in blocks(*languages) if not block.note]
    return pytest.mark.parametrize("block", those, ids=[block.where for block in those])


def test_a_block_that_is_not_run_says_why() -> None:
    notes = [block.note for block in blocks("python", "sh", "toml") if block.note not in ("", *BY_CI)]
    assert all(re.fullmatch(r"not run: \w+( \S+){2,}", note) for note in notes)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for path, heading in LINK.findall(page.read_text("utf-8")):
            target = page.parent / path if path else page
            assert target.exists(), path
            there = HEADING.findall(target.read_text("utf-8")) if heading else []
            assert not heading or heading in {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in there}


def test_pages_stay_few_and_readme_names_each() -> None:
    readme, *pages = PAGES
    assert len(pages) <= MOST_PAGES
    assert sum(len(page.read_text("utf-8").splitlines()) for page in PAGES) <= MOST_LINES
    assert [page.name for page in pages if f"(pool/docs/{page.name})" not in readme.read_text("utf-8")] == []


def reference() -> str:
    """What the schema says of each key, as Markdown."""
    lines = []
    for section in Config.model_fields:
        lines += [f"## {f'[[{section}]]' if section in LISTS else f'[{section}]'}", ""]
        lines += ["| key | default | meaning |", "| --- | --- | --- |"]
        for name, field in SECTIONS[section].model_fields.items():
            default = "required" if field.is_required() else f"`{json.dumps(field.default)}`"
            lines.append(f"| `{name}` | {default} | {field.description} |")
        lines.append("")
    return "\n".join(lines)


def test_the_page_of_the_configuration_says_what_the_schema_says() -> None:
    page = ROOT / "pool" / "docs" / "configuration.md"
    text = page.read_text("utf-8")
    right = text[: text.index("## [")] + reference()
    if os.environ.get("WRITE_PAGES"):
        page.write_text(right, "utf-8")
    assert right == page.read_text("utf-8"), "WRITE_PAGES=1 pytest tests/docs writes it anew"


def test_files_that_are_named_are_there() -> None:
    named = re.findall(r"`((?:pool|workers|tests)/[\w/.]+)`", "\n".join(page.read_text("utf-8") for page in PAGES))
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as a reader may have it: a configuration, the demo model and its input."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "digits").symlink_to(ROOT / "workers" / "demo" / "digits")
    (tmp_path / "workers").symlink_to(ROOT / "workers")
    (tmp_path / "seven.json").symlink_to(ROOT / "workers" / "demo" / "seven.json")
    (tmp_path / "config.toml").write_text('[[model]]\nname = "digits"\npath = "models/digits"\n')
    return tmp_path


@run("toml")
def test_toml(block: Block, folder: Path) -> None:
    for path in re.findall(r'^(?:handler_)?path = "(.*?)"', block.text, re.MULTILINE):
        (folder / path).touch()
    (folder / "block.toml").write_text(block.text)
    assert load(folder / "block.toml").model


@pytest.mark.tensorflow
@run("python")
def test_python(block: Block, folder: Path, running: RunningPool) -> None:
    execute([sys.executable, "-c", block.text], folder, running)


@pytest.mark.tensorflow
@run("sh")
def test_sh(block: Block, folder: Path, running: RunningPool) -> None:
    pool = f'pool() {{ "{sys.executable}" -m pool "$@"; }}'
    execute(["bash", "-euo", "pipefail", "-c", f"{pool}\n{block.text}"], folder, running)


@pytest.mark.tensorflow
def test_the_handler_of_its_page_serves(folder: Path) -> None:
    """The page's class and configuration together, with the demo model."""
    python, toml = (
        next(block.text for block in blocks(language) if block.where.startswith("handlers.md"))
        for language in ("python", "toml")
    )
    (folder / "handlers").mkdir()
    (folder / "handlers" / "names.py").write_text(python)
    image = np.ravel(json.loads((folder / "seven.json").read_text())).astype(np.uint8).tobytes()
    with pool_in(folder, CONFIG + toml) as own, Client(own.endpoint) as client:
        assert client.run("digits", {"image": [image]})["name"].tolist() == [b"seven"]
        fed = {"serving_default_pixels:0": [[0.0] * 64]}
        assert client.session("digits").run("StatefulPartitionedCall:0", fed).shape == (1,), "it passes the handler by"


def execute(command: list[str], folder: Path, running: RunningPool) -> None:
    environ = {**os.environ, "POOL_ENDPOINT": running.endpoint}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
