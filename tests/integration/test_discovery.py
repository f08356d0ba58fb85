"""What follows a Ray cluster for a client is a process, which may say anything, hang, or die again and again.

In the place of Ray is a package of its name, which that process imports first.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pool.client.discovery import BACKOFF_S, SCHEME, Discovery
from pool.errors import PoolUnreachable
from support.processes import alive, eventually

SAYS = """
import os, sys, time
with open({seen!r}, "a") as seen:
    seen.write(f"{{os.getpid()}}\\n")
def say(text):
    os.write(1, text.encode("latin-1"))
"""
GARBAGE = r"""
for line in ("", "nonsense", "5", "null", "[]", '["a"]', '[["a", "b"]]', '{"a": 5}', "\xff\xfe", "x" * 1000000):
    say(line + "\n")
"""
LIST = 'say(\'{"a/pool": "%s"}\\n\')\n'
UNTIL_THE_END = "sys.stdin.read()\nos._exit(0)\n"


class Child:
    """What the process does in place of importing Ray."""

    def __init__(self, folder: Path) -> None:
        self._package = folder / "ray"
        self._package.mkdir()
        self._seen = folder / "seen"
        self._seen.touch()

    def does(self, script: str) -> None:
        (self._package / "__init__.py").write_text(SAYS.format(seen=str(self._seen)) + script)

    @property
    def pids(self) -> list[int]:
        """Of all that were started."""
        return list(map(int, self._seen.read_text().split()))


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = Child(tmp_path)
    yield found
    eventually(lambda: not any(map(alive, found.pids)))


def test_garbage_is_passed_over(child: Child) -> None:
    child.does(GARBAGE + LIST % "tcp://a:1" + UNTIL_THE_END)
    heard: list[Mapping[str, str]] = []
    discovery = Discovery("a:1", heard.append)
    try:
        assert discovery.wait() == {"a/pool": "tcp://a:1"}
        eventually(lambda: heard == [{"a/pool": "tcp://a:1"}])
    finally:
        discovery.close()


def test_one_that_dies_at_once_is_started_again_after_pauses_that_grow(child: Child) -> None:
    child.does('sys.exit("no cluster for you")')
    began = time.monotonic()
    discovery = Discovery("a:1")
    try:
        eventually(lambda: len(child.pids) == 3)
        assert time.monotonic() - began >= 3 * BACKOFF_S[0], "a pause, and one twice as long"
        with pytest.raises(PoolUnreachable, match="no cluster for you"):
            discovery.wait(0.0)
    finally:
        discovery.close()


def test_the_last_list_stays_while_another_one_is_started(child: Child) -> None:
    child.does(LIST % "tcp://a:1")
    discovery = Discovery("a:1")
    try:
        eventually(lambda: len(child.pids) == 2)
        assert discovery.pools == {"a/pool": "tcp://a:1"}
    finally:
        discovery.close()


def test_one_that_hangs_is_killed_with_its_client(child: Child) -> None:
    child.does("time.sleep(600)")
    discovery = Discovery("a:1")
    try:
        eventually(lambda: len(child.pids) == 1)
        with pytest.raises(PoolUnreachable, match="no pool was found"):
            discovery.wait(0.1)
    finally:
        discovery.close()
    assert not alive(child.pids[0])


def test_a_program_that_ends_as_it_looks_for_the_cluster_leaves_nothing(child: Child) -> None:
    """Ctrl-C ends it while the client is made. The process that follows has a group of its own, so it gets none."""
    child.does(UNTIL_THE_END)
    program = f"from pool import Client\nClient({SCHEME + 'a:1'!r})"
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process:
        eventually(lambda: len(child.pids) == 1)
        process.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in process.communicate(timeout=20)[1]


def test_a_client_that_was_interrupted_as_it_looked_for_the_cluster_leaves_nothing(child: Child) -> None:
    """The program goes on."""
    child.does(UNTIL_THE_END)
    program = f"""
import time
from pool import Client
try:
    Client({SCHEME + "a:1"!r})
except KeyboardInterrupt:
    print("interrupted", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        try:
            eventually(lambda: len(child.pids) == 1)
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            assert process.stdout.readline() == b"interrupted\n"
            eventually(lambda: not any(map(alive, child.pids)))
        finally:
            process.kill()
