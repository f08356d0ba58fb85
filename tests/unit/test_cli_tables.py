"""What people read: sizes, durations, tables of every width."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from pool.cli import status as status_module
from pool.cli.models import models
from pool.cli.picture import picture
from pool.cli.readable import count_of, percent, short_uuid, size, span, spec_of
from pool.cli.status import status

GPU_SLOT = {
    "slot": 0,
    "device": "gpu:0",
    "device_name": "NVIDIA H200",
    "uuids": ["GPU-5f1d4a3e-0000-4000-8000-000000000000"],
    "pid": 1234567,
    "incarnation": 12,
    "state": "READY",
    "state_s": 100.0,
    "reason": "",
    "models": ["guesslang", "efficientnet_v2", "classifier[?]"],
    "doing": "running efficientnet_v2 for 12.3 s",
    "lanes": 2,
    "busy_lanes": 1,
    "jobs_done": 1234567,
    "memory_bytes": 12 * 2**30,
    "successor": None,
    "standby": None,
}
DEAD_SLOT = {
    **GPU_SLOT,
    "slot": 1,
    "device": "gpu:1",
    "pid": None,
    "state": "FATAL",
    "doing": "",
    "jobs_done": 0,
    "memory_bytes": None,
    "reason": "exit status 74 MODEL_CANNOT_LOAD: model digits: /models/digits is no SavedModel",
}
STATUS = {
    "version": "0.1.0",
    "instance": "00",
    "pid": 77,
    "endpoint": "ipc:///run/user/1000/pool/pool.sock",
    "uptime_s": 3700.0,
    "state": "SERVING",
    "slots": [GPU_SLOT, DEAD_SLOT],
    "queue": {"jobs": 3, "queued": 2, "bytes": 5000},
    "answered": {"done": 12, "model-failed": 1},
}
SPEC = {"dtype": "float32", "shape": [-1, 64]}
ALONE = {"batchable": False, "rows": "job by job: it keeps state", "amiss": "InvalidArgumentError: no JPEG"}
MODELS = [
    {
        "name": "digits",
        "slots": [0, 1],
        "ready_slots": [0],
        "path": "/models/digits",
        "stateful": True,
        "handler": "",
        "speed_ups": [],
        "scheduling": {"home": None},
        "signatures": {
            "other": {"inputs": {}, "outputs": {"y": {"dtype": "int64", "shape": None}}, **ALONE},
            "serving_default": {
                "inputs": {"pixels": SPEC},
                "outputs": {"a": SPEC, "b": {"dtype": "int64", "shape": []}},
                "batchable": True,
                "rows": "in batches: batching = true",
                "amiss": None,
            },
        },
    },
    {"name": "slow", "slots": [1], "ready_slots": [], "path": None, "stateful": None, "signatures": {}},
]


class FakeClient:
    """A pool that says what a test wants."""

    def __init__(self, endpoint: str | None, *, connect_timeout: float, reconnect_timeout: float) -> None:
        self.endpoint = endpoint
        assert connect_timeout < 5
        assert reconnect_timeout == 0, "who looks wants to know now"

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def status(self) -> Any:
        return STATUS

    def models(self) -> Any:
        return MODELS


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(status_module, "Client", FakeClient)
    monkeypatch.setattr("pool.cli.models.Client", FakeClient)
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(command: Any, *argv: str, columns: int | None = None) -> str:
        if columns is not None:
            monkeypatch.setenv("COLUMNS", str(columns))
        result = CliRunner().invoke(command, argv, catch_exceptions=False)
        assert result.exit_code == 0
        return result.output

    return run


def test_status_in_a_pipe_has_a_line_a_slot(shown: Any) -> None:
    lines = shown(status).splitlines()
    assert lines[0] == "pool 0.1.0 at ipc:///run/user/1000/pool/pool.sock, pid 77, up 1 h 1 min: SERVING"
    assert lines[1] == "3 jobs: 2 queued, 1 running, 4.9 KiB; answered: 12 done, 1 model failed"
    assert lines[3].split() == ["SLOT", "DEVICE", "UUID", "PID", "INC.", "STATE", "DOING", "JOBS", "MEMORY", "MODELS"]
    row = lines[4]
    for word in (
        "GPU-5f1d4a3e ",
        "1234567",
        " 12 ",
        "READY",
        "running efficientnet_v2 for 12.3 s",
        "1,234,567",
        "12.0 GiB",
    ):
        assert word in row
    assert row.endswith("guesslang, efficientnet_v2, classifier[?]")  # brackets are no markup
    assert lines[-1] == f"slot 1 is FATAL: {DEAD_SLOT['reason']}"
    assert not any(line.endswith(" ") or "\x1b" in line for line in lines)


@pytest.mark.parametrize("columns", [72, 80, 100, 200])
def test_status_keeps_to_its_width_and_loses_nothing(shown: Any, columns: int) -> None:
    output = shown(status, columns=columns)
    assert max(map(len, output.splitlines())) <= columns
    for word in ("gpu:0", "GPU-5f1d4a3e", "1234567", "12", "READY", "FATAL", "1,234,567", "12.0 GiB", "guesslang"):
        assert word in output
    assert "…" not in output


def test_status_as_json_is_the_pools_own(shown: Any) -> None:
    assert json.loads(shown(status, "--json")) == STATUS


LOADS = [
    {
        "name": "efficientnet_v2",
        "queued_jobs": 1234,
        "unanswered_jobs": 1250,
        "bytes": 5 * 2**20,
        "device_s": 98.7,
        "max_batch": 32,
        "working_sizes": [{"signature": "serving_default", "rows": 8}],
        "dependent": {"embed": "output 'y' gave 2 for a row that gave 1"},
        "amiss": {"other": "InvalidArgumentError: no JPEG"},
        "costs": [
            {"signature": "rare", "sizes": [{"rows": 4, "batches": 1, "median_s": 1.0, "slowest_s": 1.0}]},
            {
                "signature": "serving_default",
                "sizes": [
                    {"rows": 8, "batches": 50, "median_s": 0.0213, "slowest_s": 0.1},
                    {"rows": 1, "batches": 7, "median_s": 0.0042, "slowest_s": 0.1},
                ],
            },
        ],
    },
    {"name": "new"},
]


def test_status_has_what_waits_for_each_model(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STATUS, "models", LOADS)
    lines = shown(status).splitlines()
    heading = next(number for number, line in enumerate(lines) if line.startswith("MODEL "))
    assert lines[heading].split() == ["MODEL", "QUEUED", "RUNNING", "SIZE", "DEVICE", "TIME", "MAX", "BATCH", "TAKES"]
    assert " ".join(lines[heading + 1].split()) == (
        "efficientnet_v2 1,234 16 5.0 MiB 98.70 s 32 1 row 4.20 ms, 8 rows 21.30 ms"
    )
    assert lines[heading + 2].split() == ["new", "0", "0", "–", "0.00", "s", "–", "–"]
    lowered = "runs in batches of 8 rows, not max_batch's 32, for lack of memory"
    assert f"efficientnet_v2 serving_default {lowered}" in lines
    assert lines[-3] == "efficientnet_v2 embed runs each job alone: output 'y' gave 2 for a row that gave 1"
    assert lines[-1] == "efficientnet_v2 other failed whenever it was warmed up: InvalidArgumentError: no JPEG"


@pytest.mark.parametrize("columns", [72, 80, 120])
def test_status_with_models_keeps_to_its_width(shown: Any, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setitem(STATUS, "models", LOADS)
    output = shown(status, columns=columns)
    assert max(map(len, output.splitlines())) <= columns
    assert "1,234" in output
    assert ("21.30 ms" in output) == (columns >= 100)


def test_models(shown: Any) -> None:
    assert shown(models).splitlines() == [
        "digits  slots 0, 1 (ready: 0)  stateful: one that may have started is not run again",
        "  /models/digits",
        "  serving_default  in   pixels: float32 [?, 64]",
        "                   out  a: float32 [?, 64]",
        "                        b: int64 []",
        "  other            in   –",
        "                   out  y: int64 of any shape",
        "  serving_default runs in batches: batching = true",
        "  other runs job by job: it keeps state",
        "  other failed whenever it was warmed up: InvalidArgumentError: no JPEG",
        "",
        "slow  slot 1, not ready",
        "  no worker has loaded it; `pool status` says why",
    ]


def test_a_model_with_a_handler_and_speed_ups(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS[0], "stateful", False)
    monkeypatch.setitem(MODELS[0], "handler", "digits:Digits")
    decided = {"slot": 1, "kind": "freeze", "kept": True, "why": "takes 0.50 of the time"}
    monkeypatch.setitem(MODELS[0], "speed_ups", [decided, {**decided, "kind": "jit", "kept": False}])
    assert shown(models).splitlines()[:3] == [
        "digits  slots 0, 1 (ready: 0)  handled by digits:Digits",
        "  slot 1: freeze kept: takes 0.50 of the time",
        "  slot 1: jit dropped: takes 0.50 of the time",
    ]


def test_a_model_that_a_session_has_written_says_where(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS[0], "scheduling", {"home": 1})
    monkeypatch.setitem(MODELS[0], "stateful", False)
    title = "digits  slots 0, 1 (ready: 0)  a session wrote its variables: all its jobs run in slot 1"
    assert shown(models).splitlines()[0] == title


def test_a_model_that_writes_state_says_where_it_is(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS[0], "scheduling", {"home": 1})
    title = "digits  slots 0, 1 (ready: 0)  stateful: its jobs keep to slot 1, and one that may have started is not run"
    assert " ".join(shown(models).split()).startswith(" ".join(title.split()))


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**20, "1.0 MiB"), (5 * 2**30, "5.0 GiB")],
)
def test_size(value: int | None, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.4, "0 s"), (59.9, "59 s"), (60, "1 min"), (192, "3 min 12 s"), (3600, "1 h"), (90_061, "1 d 1 h")],
)
def test_span(value: float, text: str) -> None:
    assert span(value) == text


def test_small_words() -> None:
    assert [count_of(number, "slot") for number in (0, 1, 2)] == ["0 slots", "1 slot", "2 slots"]
    assert [percent(part) for part in (0.0, 0.5, 0.9999, 1.0)] == ["0.0 %", "50.0 %", "99.9 %", "100.0 %"]
    assert short_uuid("MIG-12345678-90ab-cdef-0000-000000000000") == "MIG-12345678"
    assert str(spec_of(SPEC)) == "float32 [?, 64]"
    assert str(spec_of({"dtype": "string", "shape": None})) == "string of any shape"


def test_a_picture() -> None:
    pixels = [16, 0, 16, 0] + [0, 0, 16, 0] + [16] * 4 + [0] * 4
    assert picture(pixels, 4, 16, shades=False).plain == "▀ █ \n▀▀▀▀"
    console = Console(force_terminal=True, color_system="256", width=80)
    with console.capture() as capture:
        console.print(picture(pixels, 4, 16, shades=True))
    assert "38;5;255;48;5;232" in capture.get()


def test_status_says_what_is_done_beside_the_worker(monkeypatch: pytest.MonkeyPatch, shown: Any) -> None:
    successor = {"incarnation": 13, "state": "LOADING", "doing": "loading efficientnet_v2 for 3 s"}
    slot = {**GPU_SLOT, "successor": successor, "standby": {"state": "READY", "doing": ""}}
    monkeypatch.setitem(STATUS, "slots", [slot])
    text = shown(status)
    assert "; incarnation 13 beside it: loading efficientnet_v2 for 3 s; standby: READY" in text
