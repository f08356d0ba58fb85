"""From a file, a mapping or nothing to `Settings`.

All three raise `InvalidConfig` and nothing else; its message has every mistake, one a line:
`FILE:LINE: [section] key: what is wrong; what would be right`.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from pydantic import ValidationError

from pool.config.mistakes import Mistake, find_mistakes
from pool.config.section import Context
from pool.config.settings import ModelSection, Settings
from pool.config.source import TomlSource
from pool.errors import Incompatible, InvalidConfig

__all__ = ["demo_folder", "load_settings", "parse_settings", "tokens_path", "with_demo", "with_gateway"]


def load_settings(path: Path, user: int | None = None) -> Settings:
    """The settings in a TOML file. Paths become absolute, relative to the file's folder.

    `user`: the id of who is to run the pool, and owns its private files; None: this process's.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidConfig(f"{path}: cannot be read: {reason}; write the path of a readable file") from None
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path}: is not UTF-8 text (at byte {error.start}); save it as UTF-8") from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(_not_toml(path, error)) from None
    return _settings(data, str(path), path.absolute().parent, text, user)


def parse_settings(data: Mapping[str, object], where: str, base: Path) -> Settings:
    """The settings in a mapping with the keys of `config.toml`; `where` begins each line of an error.

    Paths become absolute, relative to `base`; they may be `Path`s.
    """
    return _settings(data, where, base, None)


def with_demo(settings: Settings, demo_path: Path) -> Settings:
    """The same; one without a model serves the demo model `digits`."""
    if settings.model:
        return settings
    demo = ModelSection(name="digits", path=str(demo_path.absolute()))
    return settings.model_copy(update={"model": (demo,)})


def with_gateway(settings: Settings, given: Mapping[str, object], where: str, base: Path) -> Settings:
    """The same with a `[gateway]`, in which these keys are as given; `where` and `base` as in `parse_settings`."""
    former = settings.gateway
    kept = {} if former is None else {key: getattr(former, key) for key in former.model_fields_set}
    told = {key: value for key, value in {**kept, **given}.items() if value is not None}  # None is what is not set
    return settings.model_copy(update={"gateway": parse_settings({"gateway": told}, where, base).gateway})


def tokens_path(path: Path) -> Path | None:
    """What `[gateway] tokens` of a file names, where it has that key. Whether it is there does not matter."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        load_settings(path)  # says what is wrong
        raise
    section = data.get("gateway")
    named = section.get("tokens", "off") if isinstance(section, dict) else "off"
    if not isinstance(named, str) or named in ("", "off"):
        return None
    return path.absolute().parent / Path(named).expanduser()


def _settings(
    data: Mapping[str, object], where: str, base: Path, text: str | None, user: int | None = None
) -> Settings:
    """`text`: of the file, where there is one."""
    settings, error = None, None
    try:
        settings = Settings.model_validate(dict(data), context=Context(base, os.geteuid() if user is None else user))
    except ValidationError as refused:
        error = refused
    mistakes = find_mistakes(error, data)
    if settings is None or mistakes:
        source = None if text is None else TomlSource(text)
        lines = {mistake: source.line_of(mistake.path) if source else None for mistake in mistakes}
        ordered = sorted(mistakes, key=lambda mistake: lines[mistake] or 0)
        raise InvalidConfig("\n".join(_line(where, lines[mistake], mistake) for mistake in ordered))
    return settings


def _line(where: str, line: int | None, mistake: Mistake) -> str:
    place = where if line is None else f"{where}:{line}"
    return f"{place}: {mistake.key()}: {mistake.text}"


def _not_toml(path: Path, error: tomllib.TOMLDecodeError) -> str:
    text = str(error)
    if at := re.search(r" \(at line (\d+), column (\d+)\)$", text):
        return f"{path}:{at[1]}: is not TOML: {text[: at.start()]} in column {at[2]}; correct the line"
    return f"{path}: is not TOML: {text}; correct the end of the file"


def demo_folder() -> Path:
    """The folder of the demo, with `digits/` (a SavedModel), `samples.json` and `seven.json`.

    The worker's package is looked up, not imported: importing it is the workers' right.
    """
    spec = find_spec("workers")
    if spec is None or not spec.submodule_search_locations:
        raise Incompatible("the package `workers` is not installed beside `pool`; install tf-worker-pool again")
    return Path(spec.submodule_search_locations[0], "tf", "demo")
