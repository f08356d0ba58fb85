"""Where a process's log goes: seen from the outside, on its standard error."""

import contextlib
import json
import logging
import os
import pty
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pool import logs
from pool.logs.entry import Entry
from pool.logs.file import BoundedFile
from pool.logs.lines import for_people

PROGRAM = """
import logging, os, sys
from pathlib import Path
from pool import logs
{patience}
with logs.to_stderr({as_json}, logging.INFO, os.environ, Path({journal!r})) as for_programs:
    logging.getLogger("pool.x").info("a line of %s", "text", extra=logs.about("named", slot=0))
    logging.getLogger("pool.x").debug("not wanted")
print("for programs" if for_programs else "for people", file=sys.stderr)
"""


PATIENCE = "logs.output.FLUSH_S = 30.0"  # on a busy machine the thread that writes may take longer than a second


def program(as_json: bool = False, journal: Path = Path("/none"), patience: str = PATIENCE) -> list[str]:
    return [sys.executable, "-P", "-c", PROGRAM.format(as_json=as_json, journal=str(journal), patience=patience)]


def said(argv: list[str], **environ: str) -> list[str]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True, env={**os.environ, **environ})
    return done.stderr.splitlines()


def test_all_of_it_stands_before_what_is_printed_later() -> None:
    line, last = said(program())
    assert line[19:] == " INFO    a line of text"
    assert last == "for people"


def test_json_has_the_fields() -> None:
    line, last = said(program(as_json=True))
    assert json.loads(line).items() >= {"event": "named", "slot": 0, "level": "info"}.items()
    assert last == "for programs"


def test_a_character_that_the_encoding_lacks_is_no_reason_to_lose_a_line() -> None:
    line, _ = said([*program()[:-1], program()[-1].replace('"text"', '"…"')], PYTHONIOENCODING="ascii")
    assert line[19:] == " INFO    a line of \\u2026"


def run_with_journal(stream: bool, argv: list[str]) -> str:
    """What comes on standard error, which is named as the journal's or not."""
    with tempfile.TemporaryFile() as file:
        about = os.fstat(file.fileno())
        inode = about.st_ino if stream else 1
        environ = {**os.environ, "JOURNAL_STREAM": f"{about.st_dev}:{inode}"}
        subprocess.run(argv, stderr=file, timeout=60, check=True, env=environ)
        file.seek(0)
        return file.read().decode()


def test_the_journal_gets_fields_where_standard_error_leads_there() -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        path = Path(folder, "socket")
        journal.bind(os.fspath(path))
        journal.settimeout(10)
        assert run_with_journal(True, program(journal=path)) == "for programs\n"
        message = journal.recv(65536)
        assert message.startswith(b"MESSAGE=a line of text\nPRIORITY=6\nSYSLOG_IDENTIFIER=pool\n")
        assert b"\nTFPOOL_SLOT=0\n" in message

        journal.setblocking(False)
        assert run_with_journal(False, program(journal=path)).endswith("for people\n")
        assert run_with_journal(True, program(as_json=True, journal=path)).startswith("{")
        with pytest.raises(BlockingIOError):
            journal.recv(65536)


def test_without_the_socket_the_journal_gets_priorities() -> None:
    assert run_with_journal(True, program()) == "<6>a line of text\nfor programs\n"


def full_pipe() -> tuple[int, int]:
    """A pipe that takes nothing more until somebody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    return reader, writer


def test_a_pipe_that_nobody_reads_holds_up_the_end_for_a_second_at_most() -> None:
    reader, writer = full_pipe()
    try:
        done = subprocess.run(program(patience=""), stderr=writer, timeout=60, check=False)
        assert done.returncode == 0
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_a_standard_error_that_takes_nothing_is_no_error(redirection: str) -> None:
    script = program()[-1].rpartition("print")[0]
    command = f'exec "$0" -P -c "$1" {redirection}'
    subprocess.run(["sh", "-c", command, sys.executable, script], timeout=60, check=True)


def test_a_reader_that_is_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        script = program()[-1].rpartition("print")[0]
        subprocess.run([sys.executable, "-P", "-c", script], stderr=writer, timeout=60, check=True)
    finally:
        os.close(writer)


def test_a_file_is_kept_from_growing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        bounded = BoundedFile(path, fd, for_people, most_bytes=1000)
        for number in range(200):
            bounded.send(Entry(0.0, 20, "e", f"line {number}", {}))
        os.write(fd, b"printed by somebody else\n")
    finally:
        os.close(fd)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log", "log.1"]
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2200
    text = (tmp_path / "log.1").read_text() + path.read_text()
    numbers = [int(line.split()[-1]) for line in text.splitlines()[:-1]]
    assert numbers == list(range(numbers[0], 200))
    assert text.endswith("printed by somebody else\n")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    fd = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        bounded = BoundedFile(folder / "log", fd, for_people, most_bytes=10)
        (folder / "log").unlink()
        folder.rmdir()
        bounded.send(Entry(0.0, 20, "e", "a line", {}))
    finally:
        os.close(fd)


def in_a_terminal(program: str, **environ: str) -> str:
    ours, its = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program], stderr=its, env={**kept, "TERM": "xterm", **environ}
    )
    os.close(its)
    written = b""
    with contextlib.suppress(OSError):  # it has ended
        while chunk := os.read(ours, 65536):
            written += chunk
    os.close(ours)
    assert process.wait(60) == 0
    return written.decode()


IN_TERMINAL = f"""
import logging, os
from pool import logs
{PATIENCE}
with logs.to_stderr(False, logging.INFO, os.environ):
    logs.show("0 of 1 slots READY " + "." * 1000)
    logging.getLogger("pool").warning("beside it")
    logs.show("")
    logging.getLogger("pool").info("over")
"""


def test_a_terminal_has_colours_and_a_line_of_what_goes_on_that_makes_way() -> None:
    written = in_a_terminal(IN_TERMINAL)
    assert "\x1b[33mWARNING\x1b[0m beside it" in written
    for line in written.split("\n"):  # the last that the cursor's line shows is a whole line of the log
        assert "slots READY" not in line.rsplit("\x1b[K", 1)[-1] or not line.endswith("\r"), written
    assert written.endswith("over\r\n")


def test_who_wants_no_colour_has_none() -> None:
    assert "\x1b[33m" not in in_a_terminal(IN_TERMINAL, NO_COLOR="1")
    assert "\x1b[33m" not in in_a_terminal(IN_TERMINAL, TERM="dumb")


def test_a_pipe_has_neither_colour_nor_what_goes_on() -> None:
    lines = said([sys.executable, "-P", "-c", IN_TERMINAL])
    assert [line[20:] for line in lines] == ["WARNING beside it", "INFO    over"]


def test_the_last_entries_are_kept_for_whoever_asks() -> None:
    with logs.to_file(Path(os.devnull), logging.INFO):
        log = logging.getLogger("pool.x")
        for number in range(1100):
            log.info("%d", number)
        told: list[tuple[int, Entry]] = []
        while found := logs.since(told[-1][0] if told else 0):
            assert len(found) <= 200, "an answer has an end"
            told += found
        assert [entry.message for _, entry in told] == [str(number) for number in range(100, 1100)]
        log.info("x" * 10_000, extra={"fields": {"reason": "y" * 10**6}})
        assert len(logs.since(told[-1][0])) == 1, "a long one is told too"
    assert logs.since(0) == []
