"""`pool gateway` in the foreground, as a process of its own."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support.processes import eventually

END_S = 30.0


@contextlib.contextmanager
def foreground(folder: Path, *arguments: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """With its log. Ended with SIGKILL where a test has not ended it."""
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pool", "gateway", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stderr=file,
        )
    try:
        yield process, log
    finally:
        process.kill()
        process.wait(END_S)


def url_of(log: Path, process: "subprocess.Popen[bytes]") -> str:
    """As soon as it is ready."""

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        return "ready:" in log.read_text()

    eventually(is_ready, END_S, log.read_text)
    match = re.search(r"ready: (http://127\.0\.0\.1:\d+) answers for the pools? .+$", log.read_text(), re.M)
    assert match, log.read_text()
    return match[1]
