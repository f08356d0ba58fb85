"""The commands against a client without a pool: what they print, and their exit statuses."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import pytest

import pool
from pool.cli import main
from pool.errors import InvalidConfig, PoolUnreachable

# As JSON, since a dictionary's display would take a line for each key.
STATUS: dict[str, Any] = json.loads(
    """{
    "pool": {"pid": 4321, "release": "0.2.0", "endpoint": "ipc:///x/pool.sock", "state": "DEGRADED", "uptime_s": 300},
    "slots": [
        {"slot": 0, "device": "gpu:0 (GPU-12345678…)", "pid": 4400, "state": "READY", "for_s": 240, "failed": {},
         "models": ["digits", "guesslang"], "doing": "runs 4 of digits for 0.1 s", "why": "", "gpus": [],
         "versions": {"digits": ["2"]}},
        {"slot": 1, "device": "gpu:1 (GPU-87654321…)", "pid": null, "state": "FATAL", "for_s": 9, "doing": "",
         "models": [], "failed": {"broken": "no such file \\u001b[31m"}, "why": "6 deaths, the last one by SIGKILL",
         "gpus": [], "versions": {}}],
    "models": [
        {"name": "digits", "state": "READY", "waiting": 12, "running": 4, "done": 1234567, "failed": 2,
         "errors": {"ModelFailed": 2}, "recent_errors": {"ModelFailed": 1}, "rate": 5123.4, "p50_s": 0.0008,
         "p99_s": 1.5}],
    "queue": {"jobs": 16, "bytes": 3145728, "max_jobs": 10000, "max_bytes": 2147483648},
    "clients": 1, "door": {"pid": 77, "addresses": ["http://127.0.0.1:8000"]}, "missing": {}, "changes": [],
    "deaths": [{"slot": 1, "ago_s": 9, "why": "SIGKILL"}]
    }"""
)
MODEL: dict[str, Any] = json.loads(
    """{
    "name": "digits", "path": "/models/digits", "batching": "auto", "is_stateful": false, "slots": [0], "why": "",
    "signatures": {
        "serving_default": {"inputs": {"pixels": ["float32", [-1, 64]]}, "outputs": {"label": ["int64", [-1]]},
                            "defaults": [], "verdicts": {}, "max_batch": 1},
        "text": {"inputs": {"content": ["string", [-1]]}, "outputs": {"classes": ["string", null]},
                 "defaults": [], "verdicts": {}, "max_batch": 1}},
    "left_out": {"odd": "no inputs"}, "notes": []
    }"""
)


class Result(dict[str, Any]):
    device, slot = "cpu:0", 0


Shell = Callable[..., str]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    """Runs a command line in an empty folder, 80 columns wide, on a machine whose GPUs are out of sight.

    Gives what the command prints; of a failure, which prints nothing, what it says.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("POOL_ENDPOINT", f"ipc://{tmp_path}/pool.sock")

    def run(*argv: str, status: int = 0, stdin: bytes = b"") -> str:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as exited:
            main(list(argv))
        out, err = capsys.readouterr()
        assert (exited.value.code or 0, out if status else "") == (status, ""), err
        return err if status else out

    return run


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Says what `STATUS` and `MODEL` say, and keeps what it was asked to do."""
    fake = create_autospec(pool.Client, instance=True)
    fake.__enter__.return_value = fake
    fake.status.return_value, fake.is_ready.return_value = STATUS, True
    fake.models.return_value, fake.model.return_value = [MODEL], MODEL
    fake.run.return_value = Result(label=np.array([7]))
    kept = [(number, f"line {number}") for number in range(1, 451)]
    fake.logs.side_effect = lambda since: {"lines": kept[since : since + 200], "next": min(450, since + 200)}
    monkeypatch.setattr(pool, "Client", lambda _: fake, raising=False)
    return fake


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_help_of_every_command_fits_a_screen(shell: Shell) -> None:
    names = [line[0] for line in lines(shell("--help").partition("Commands:")[2]) if line]
    assert " ".join(names) == (
        "bench check doctor door drain health help init load logs models placement reload restart start status stop "
        "submit systemd token undrain unload wait"
    )
    for name in names:
        assert max(map(len, shell(name, "--help").splitlines())) <= 80


def test_the_command_imports_nothing_heavy() -> None:
    code = "import sys, pool.cli; print({'numpy', 'zmq', 'pydantic', 'tensorflow'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (PoolUnreachable("no pool at ipc:///x"), 1, "pool: no pool at ipc:///x\n"),
        (InvalidConfig("c.toml:1: a\nc.toml:2: b\x1b"), 2, "pool: c.toml:1: a\nc.toml:2: b\\x1b\n"),
        (KeyboardInterrupt(), 130, "\n"),
        (ModuleNotFoundError("No module 'x'"), 1, "pool: No module 'x'; pip install 'tf-worker-pool[worker,door]'\n"),
    ],
)
def test_a_failure_is_a_line(shell: Shell, client: Any, error: BaseException, status: int, told: str) -> None:
    client.__enter__.side_effect = error
    assert shell("health", status=status) == told


def test_a_reader_that_leaves_is_no_failure_to_tell() -> None:
    command = f"{sys.executable} -m pool help python | head -c 1"
    assert subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stderr == ""


@pytest.mark.usefixtures("client")
def test_status_on_80_columns(shell: Shell) -> None:
    shown = shell("status")
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b" not in shown
    assert "pool DEGRADED, up 5 min, pid 4321, release 0.2.0" in shown
    assert "jobs: 16 of 10,000, 3.1 MB of 2.1 GB; clients: 1" in shown
    assert ["digits", "READY", "12", "4", "1,234,567", "2", "5,123", "0.8", "ms", "1.5", "s"] in lines(shown)
    told = " ".join(shown.split())
    assert "Slot 1 is FATAL: 6 deaths, the last one by SIGKILL" in told
    assert "Slot 1 cannot load broken: no such file \\x1b[31m" in told
    assert "Jobs of digits failed: 2 ModelFailed; 1 in the last minute" in told
    assert json.loads(shell("status", "--json")) == STATUS


@pytest.mark.usefixtures("client")
def test_models(shell: Shell) -> None:
    shown = shell("models")
    assert ["serving_default", "in", "pixels", "float32", "[?,", "64]"] in lines(shown)
    assert ["text", "out", "classes", "string", "of", "any", "shape"] in lines(shown)
    assert "odd cannot be served: no inputs" in shown
    assert json.loads(shell("models", "--json")) == [MODEL]


def test_submit_makes_a_row_a_batch_of_one(shell: Shell, client: Any) -> None:
    shown = shell("submit", "digits", "--input", "pixels=[1, 2]", "--timeout", "5", "--output", "label")
    assert shown == "label int64 [1]: [7]\n"
    options = {"signature": None, "outputs": ("label",), "timeout": 5.0}
    client.run.assert_called_once_with("digits", {"pixels": [[1, 2]]}, **options)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("import x=1", [b"import x=1"]),
        ('["a", "b"]', ["a", "b"]),
        ("-", [b"piped"]),
        ("@some.txt", [b"in a file"]),
        ("content=@some.json", ["x"]),
    ],
)
def test_texts(shell: Shell, client: Any, tmp_path: Path, text: str, value: list[Any]) -> None:
    (tmp_path / "some.txt").write_bytes(b"in a file")
    (tmp_path / "some.json").write_text('["x"]')
    shell("submit", "digits", "--signature", "text", "--input", text, stdin=b"piped")
    assert client.run.call_args.args == ("digits", {"content": value})


def test_arrays_come_from_npy(shell: Shell, client: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "row.npy", np.ones(64, np.float32))
    for value in ("@row.npy", "-"):
        shell("submit", "digits", "--input", value, stdin=(tmp_path / "row.npy").read_bytes())
        assert client.run.call_args.args[1]["pixels"].shape == (1, 64)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pixels=seven", "'seven': Expecting value: line 1 column 1 (char 0); write float32 [?, 64] as JSON"),
        ("@none.npy", "No such file or directory: 'none.npy'"),
        ("@pickled.npy", "allow_pickle=False"),
    ],
)
@pytest.mark.usefixtures("client")
def test_a_value_that_cannot_be_is_a_usage_error(shell: Shell, text: str, told: str) -> None:
    np.save("pickled.npy", np.array([{}]), allow_pickle=True)
    assert told in shell("submit", "digits", "--input", text, status=2)


def test_outputs_of_all_kinds_as_json(shell: Shell, client: Any) -> None:
    client.run.return_value = Result(
        floats=np.array([[0.5, np.nan]], np.float32), texts=np.array([b"a", b"\xff"], object), flag=np.array(True)
    )
    answer = json.loads(shell("submit", "digits", "--input", "[1]", "--json"))
    assert answer["outputs"]["floats"] == {"dtype": "float32", "shape": [1, 2], "values": [[0.5, "nan"]]}
    assert answer["outputs"]["texts"]["values"] == ["a", {"b64": "/w=="}]
    assert answer["outputs"]["flag"]["values"] is True
    assert answer["device"] == "cpu:0"


def test_a_long_output_is_shortened(shell: Shell, client: Any) -> None:
    client.run.return_value = Result(rows=np.zeros((100, 100), np.float32), text=np.array([b"\x1b[31m"], object))
    shown = shell("submit", "digits", "--input", "[1]")
    assert shown.startswith("rows float32 [100, 100]:\n  [[0., 0.")
    assert shown.endswith("text string [1]: ['\\x1b[31m']\n")
    assert len(shown.splitlines()) < 15


def test_check_says_what_would_run_where(shell: Shell, tmp_path: Path) -> None:
    assert shell("check", "--explain", "model.max_batch").startswith("model.max_batch = 32\n")
    shown = shell("check")
    assert "configuration: none" in shown
    assert ["1", "cpu:1", "CPU", "–", "–", "digits"] in lines(shown)
    (tmp_path / "config.toml").write_text('[pool]\ndevices = ["cpu"]\n[[model]]\nname = "x"\npath = "config.toml"\n')
    record = json.loads(shell("check", "--json"))
    assert record["config"] == str(tmp_path / "config.toml")
    expected = {"name": "x", "path": str(tmp_path / "config.toml"), "slots": [0], "source": "weights"}
    assert record["models"][0] | expected == record["models"][0]


@pytest.mark.usefixtures("client")
def test_logs_are_all_that_is_kept(shell: Shell) -> None:
    assert shell("logs").splitlines() == [f"line {number}" for number in range(1, 451)]
