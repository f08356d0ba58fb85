"""From a file, a mapping or nothing to `Settings`.

All three raise `InvalidConfig` and nothing else; its message has every mistake, one a line:
`FILE:LINE: [section] key: what is wrong; what would be right`.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from pool.config.mistakes import Mistake, find_mistakes
from pool.config.session import SessionSection
from pool.config.settings import ModelSection, Settings
from pool.config.source import TomlSource
from pool.errors import InvalidConfig
from pool.wire.texts import is_utf8

__all__ = ["builtin_settings", "load_settings", "parse_settings"]

STUB = "stub:"

_Session = TypeVar("_Session", bound=SessionSection)


def load_settings(path: Path) -> Settings:
    """The settings in a TOML file. Paths become absolute, relative to the file's folder."""
    try:
        text = path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidConfig(f"{path}: cannot be read: {reason}; write the path of a readable file") from None
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path}: is not text in UTF-8 (at byte {error.start}); save it as UTF-8") from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(_not_toml(path, error)) from None
    return _settings(data, str(path), path.absolute().parent, text)


def parse_settings(data: Mapping[str, object], where: str, base: Path) -> Settings:
    """The settings in a mapping with the keys of `config.toml`; `where` begins each line of an error.

    Paths become absolute, relative to `base`; they may be `Path`s.
    """
    return _settings(data, where, base, None)


def builtin_settings(demo_path: Path) -> Settings:
    """What a pool without a configuration serves: the demo model `digits`, on every device."""
    return Settings(model=(ModelSection(name="digits", path=str(demo_path.absolute()), devices="all"),))


def _settings(data: Mapping[str, object], where: str, base: Path, text: str | None) -> Settings:
    """`text`: of the file, where there is one."""
    try:
        settings = Settings.model_validate(dict(data))
    except ValidationError as error:
        mistakes = find_mistakes(error, data)
        source = None if text is None else TomlSource(text)
        lines = {mistake: source.line_of(mistake.path) if source else None for mistake in mistakes}
        ordered = sorted(mistakes, key=lambda mistake: lines[mistake] or 0)
        raise InvalidConfig("\n".join(_line(where, lines[mistake], mistake) for mistake in ordered)) from None
    models = tuple(
        model.model_copy(
            update={
                "path": _absolute(model.path, base),
                "session": _session(model.session, base),
                "handler_path": model.handler_path and _absolute(model.handler_path, base),
            }
        )
        for model in settings.model
    )
    devices = tuple(device.model_copy(update={"session": _session(device.session, base)}) for device in settings.device)
    pool = settings.pool.model_copy(update={"state": settings.pool.state and _absolute(settings.pool.state, base)})
    session = _session(settings.session, base)
    return settings.model_copy(update={"model": models, "device": devices, "pool": pool, "session": session})


def _session(session: _Session, base: Path) -> _Session:
    if not session.op_libraries:  # and where it overrides none, it is not to say so
        return session
    libraries = tuple(_absolute(library, base) for library in session.op_libraries)
    return session.model_copy(update={"op_libraries": libraries})


def _line(where: str, line: int | None, mistake: Mistake) -> str:
    place = where if line is None else f"{where}:{line}"
    return f"{place}: {mistake.key()}: {mistake.text}"


def _absolute(path: str, base: Path) -> str:
    if path.startswith(STUB):
        return path
    # `abspath`, not `resolve`: a link such as models/current must stay one; a restart follows it anew.
    whole = os.path.abspath(base / os.path.expanduser(path))
    if not is_utf8(whole):
        raise InvalidConfig(
            f"{whole!r} is not text in UTF-8: rename the folder, or write an absolute path with another"
        )
    return whole


def _not_toml(path: Path, error: tomllib.TOMLDecodeError) -> str:
    text = str(error)
    if at := re.search(r" \(at line (\d+), column (\d+)\)$", text):
        return f"{path}:{at[1]}: is not TOML: {text[: at.start()]} in column {at[2]}; correct the line"
    return f"{path}: is not TOML: {text}; correct the end of the file"
