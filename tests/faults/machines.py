"""Machines for a test: processes with an address, a process table and a folder of their own, joined by a switch.

Each is a set of Linux namespaces, held by its first process. That process ends with the test's, and the kernel then
kills all others of the machine and takes its network away. Nothing of it is in this machine's own network.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.processes import alive, children, eventually

__all__ = ["Machine", "machines"]

NET = "10.231.7"
TESTS = Path(__file__).parents[1]
# `read` ends with standard input, and with it the machine. As in many a container, nothing there reaps.
FIRST = 'ip link set lo up && mount -t tmpfs tmpfs "$1" && mkdir -m 0700 "$1/run" && echo up && read _'


class Machine:
    """`own`: the folder that it shares with no other; the same path on all."""

    def __init__(self, number: int, own: Path, environ: Mapping[str, str]) -> None:
        """Raises `OSError` where this user may make no namespaces."""
        self.own = own
        self.address = f"{NET}.{number}"
        self._port = f"port{number}"  # of the switch
        self._environ = {**os.environ, "XDG_RUNTIME_DIR": f"{own}/run", **environ}
        self._outer = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", FIRST, "sh", str(own)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._outer.stdout is not None
        if self._outer.stdout.readline() != "up\n":
            said = self._outer.communicate()[1].strip()
            raise OSError(f"this user may make no namespaces of its own: {said}")
        (self._first,) = children(self._outer.pid)

    def plug_into(self, switch: "Machine") -> None:
        _ip(switch, f"link add {self._port} type veth peer name eth0 netns {self._first}")
        _ip(switch, f"link set {self._port} master switch up")
        _ip(self, f"address add {self.address}/24 dev eth0")
        _ip(self, "link set eth0 up")

    def cut(self, switch: "Machine") -> None:
        """It runs on, and nothing comes through."""
        _ip(switch, f"link set {self._port} down")

    def mend(self, switch: "Machine") -> None:
        _ip(switch, f"link set {self._port} up")

    def write(self, name: str, text: str) -> None:
        """Into its own folder."""
        Path(f"/proc/{self._first}/root{self.own}/{name}").write_text(text)

    def argv(self, *command: str) -> list[str]:
        entered = ["nsenter", "--target", str(self._first), "--net", "--mount", "--pid"]
        return [*entered, "env", f"--chdir={TESTS}", *command]

    def start(self, *command: str, **options: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(self.argv(*command), env=self._environ, text=True, **options)

    def run(self, *command: str, timeout_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
        options: dict[str, Any] = {"env": self._environ, "timeout": timeout_s}
        done = subprocess.run(self.argv(*command), capture_output=True, text=True, check=False, **options)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def pool(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """`pool ARGUMENTS`"""
        return self.run(sys.executable, "-P", "-m", "pool", *arguments)

    def ray(self, *arguments: str) -> None:
        """`ray ARGUMENTS`. What it leaves running has none of the test's pipes."""
        with (self.own.parent / "ray.log").open("a") as log:
            process = self.start(sys.executable, "-m", "ray.scripts.scripts", *arguments, stdout=log, stderr=log)
        assert process.wait(120) == 0, (self.own.parent / "ray.log").read_text()

    def processes(self) -> dict[int, list[str]]:
        """Their command lines, by the numbers that this process knows them by."""
        found = {}
        try:
            table = os.stat(f"/proc/{self._first}/ns/pid").st_ino
        except OSError:  # it is over
            return {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.stat(entry / "ns" / "pid").st_ino == table and alive(int(entry.name)):
                    found[int(entry.name)] = (entry / "cmdline").read_text(errors="replace").split("\0")
        return found

    def die(self) -> None:
        """At once, as by a loss of power. May be called again."""
        left = [*self.processes()]
        if self._outer.poll() is None:
            os.kill(self._first, signal.SIGKILL)
            self._outer.communicate(timeout=60)
        eventually(lambda: not any(map(alive, left)))


@contextlib.contextmanager
def machines(count: int, folder: Path, environ: Mapping[str, str]) -> Iterator[Sequence[Machine]]:
    """The first is the switch, which is a machine without an address. `environ`: of all.

    They share all files but those of `folder/own`. Skips the test where a part of it can't be made.
    """
    own = folder / "own"
    own.mkdir()
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip`; Debian has it in the package iproute2")
    made: list[Machine] = []
    with contextlib.ExitStack() as ends:
        try:
            for number in range(count + 1):
                made.append(machine := Machine(number, own, environ))
                ends.callback(machine.die)
            _ip(made[0], "link add switch type bridge")
            _ip(made[0], "link set switch up")
            for each in made[1:]:
                each.plug_into(made[0])
        except OSError as error:
            pytest.skip(str(error))
        yield made


def _ip(where: Machine, arguments: str) -> None:
    done = subprocess.run(
        ["nsenter", "--target", str(where._first), "--net", "ip", *arguments.split()],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OSError(f"`ip {arguments}` does not work here: {done.stderr.strip()}")
