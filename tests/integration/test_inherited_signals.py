"""The tests mean the same wherever they are started: in a terminal, as a background job, under `nohup`."""

import re
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_what_the_tests_start_ignores_no_signal() -> None:
    done = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, timeout=30, check=True)
    (ignored,) = re.findall(r"^SigIgn:\s+(\w+)$", done.stdout, re.MULTILINE)
    assert int(ignored, 16) == 0


def test_a_job_that_ignores_them_all_can_run_the_tests() -> None:
    tests = (
        "integration/test_inherited_signals.py::test_what_the_tests_start_ignores_no_signal",
        "unit/test_client_driver.py::test_ctrl_c_while_it_waits_takes_back_the_job_alone",
    )
    ignoring = "trap '' HUP INT QUIT TERM PIPE USR1 USR2 ALRM TSTP TTIN TTOU; exec \"$@\""
    pytest_itself = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *(str(TESTS / test) for test in tests),
    ]
    done = subprocess.run(
        ["sh", "-c", ignoring, "sh", *pytest_itself], cwd=TESTS.parent, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout + done.stderr
