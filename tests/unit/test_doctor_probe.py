"""A process in the place of the doctor's own, at each step of the way: it dies, hangs, lies."""

import os
import time
from pathlib import Path

import pytest

from pool.doctor import probe
from pool.doctor.probe import Probe
from support.processes import children

NONSENSE = "its process says nonsense"


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("", "its process died: exit status 0"),
        ("raise SystemExit(74)", "its process died: exit status 74 MODEL_CANNOT_LOAD"),
        ("import os; os.kill(os.getpid(), 9)", "its process died: SIGKILL (out of memory?)"),
        ("print('80', end='', flush=True)", "its process died: exit status 0"),
        ("import os, time; os.close(1); time.sleep(600)", "its process closed its output and did not end"),
        ("import time; time.sleep(600)", "no answer within 1.5 s"),
        ("import time; print('8', end='', flush=True); time.sleep(600)", "no answer within 1.5 s"),
        ("print('hello')", NONSENSE),
        ("print('80')", NONSENSE),
        ("print('ff' * 600_000)", NONSENSE),
        ("print('ff' * 600_000, end='', flush=True); import time; time.sleep(600)", NONSENSE),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\n')", NONSENSE),
    ],
)
def test_whatever_it_does_there_is_an_answer_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, failure: str
) -> None:
    monkeypatch.setattr(probe, "LONGEST_S", 1.5)
    monkeypatch.setattr(probe, "END_S", 0.3 if "close(1)" in code else 5.0)
    (tmp_path / "peer.py").write_text(f"import sys; print('a word', file=sys.stderr)\n{code}\n")
    before = children(os.getpid())
    hangs = "600)" in code and failure.startswith("no answer")
    with Probe("peer", {**os.environ, "PYTHONPATH": str(tmp_path)}) as peer:
        answer = peer.answer(time.monotonic() + (1.5 if hangs else 30))
        assert answer.failure == failure
        assert "a word" in peer.printed() or hangs
        assert len(children(os.getpid())) <= len(before) + 1
    assert set(children(os.getpid())) <= set(before), "of those of other tests, some may be over"
