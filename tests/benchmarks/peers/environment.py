"""An environment of its own for each peer, so that none holds back another's libraries, or ours."""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

__all__ = ["NotInstalled", "default_folder", "install"]

INSTALL_S = 1800.0


class NotInstalled(Exception):
    """pip's last line says why."""


def default_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "tf-worker-pool", "benchmarks")


def install(folder: Path, name: str, requirements: Sequence[str]) -> Path:
    """The interpreter of that peer's environment, made if it is not there. With the TensorFlow that we run with."""
    wanted = "\n".join((*requirements, f"tensorflow=={version('tensorflow')}"))
    place = folder / name
    python = place / "bin" / "python"
    installed = place / "installed.txt"
    if installed.exists() and installed.read_text() == wanted:
        return python
    folder.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(place)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted.split("\n")])
    installed.write_text(wanted)
    return python


def _run(argv: Sequence[str]) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"not installed within {INSTALL_S:g} s") from None
    if done.returncode:
        raise NotInstalled((done.stderr.strip().splitlines() or ["pip said nothing"])[-1][-300:])
