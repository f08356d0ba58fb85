import logging
import os
import re

import pytest

from pool import log as module
from pool.log import Log

pool_log = logging.getLogger("pool.test")


def test_lines_are_written_and_kept_without_control_characters() -> None:
    reading, writing = os.pipe()
    log = Log(writing, {})
    pool_log.info("slot %d\x1b[31m\x9b2J\n12:00:00 ERROR faked \x85 é", 3)
    pool_log.debug("unseen")
    try:
        raise ValueError("deep\x07")
    except ValueError:
        pool_log.exception("failed")
    log.close()
    written = os.read(reading, 10_000).decode().splitlines()
    assert list(enumerate(written, start=1)) == log.since(0)
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO slot 3\\x1b\[31m\\x9b2J\\n12:00:00 ERROR faked \\x85 é", written[0])
    assert re.fullmatch(r"\d\d:\d\d:\d\d ERROR failed", written[1])
    assert written[-1].endswith("ERROR ValueError: deep\\x07")


def test_a_reader_that_stops_holds_nobody_up_and_learns_how_much_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING", 10)
    reading, writing = os.pipe()
    log = Log(writing, {})
    for _ in range(3000):  # more than a pipe holds
        pool_log.info("x" * 100)
    log.close()  # it is not read within a second, either
    read, missed = "", 0
    while missed + read.count("INFO x") < 3000:
        read += os.read(reading, 65536).decode()
        missed = sum(map(int, re.findall(r"(?m)^… (\d+) lines were dropped, since nothing read the log$", read)))
    assert missed > 1000
    assert missed + read.count("INFO x") == 3000


def test_the_journal_gets_priorities(capfd: pytest.CaptureFixture[str]) -> None:
    log = Log(2, {})
    pool_log.info("hello")
    log.close()
    pool_log.info("unseen")
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO hello\n", capfd.readouterr().err)
    status = os.fstat(2)
    log = Log(2, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
    pool_log.warning("hello")
    log.close()
    assert capfd.readouterr().err == "<4>hello\n"
