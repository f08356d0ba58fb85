"""What people read: sizes, durations, tables of every width."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from pool.cli import status as status_module
from pool.cli.demo import picture
from pool.cli.models import models
from pool.cli.status import status
from pool.core import events as told
from pool.core.policy import ModelPolicy
from pool.terminal import Column, count_of, percent, short_uuid, show, size, span, table
from pool.wire.faults import Fault
from pool.wire.optimizations import Optimization
from pool.wire.records import ModelLoad, Status, Tensor
from pool.wire.session_runs import WRITING_RUN
from pool.wire.signatures import ModelInfo, Signature, TensorSpec
from pool.wire.worker_messages import Phase
from simulation.driver import Driver
from support import told_pool
from support.commands import in_process

WHY = "exit status 74 MODEL_CANNOT_LOAD: model digits: /models/digits is not a SavedModel"
DIFFERS = "output 'y' gave 2 for a row that gave 1"
FAILED = "InvalidArgumentError: no JPEG"


def two_slots() -> Driver:
    """Slot 0 has answered some jobs, runs one and has two to run; slot 1 cannot load its model."""
    driver = Driver(["guesslang", "efficientnet_v2", "classifier[?]"], ["digits"])
    driver.start()
    driver.up(0)
    driver.feed(told.WorkerSpawned(0, 1, 1234567))
    driver.hello(1)
    driver.die(1, WHY, restartable=False)
    for _ in range(12):
        driver.submit("efficientnet_v2")
        driver.done(driver.running()[0])
    driver.submit("efficientnet_v2")
    driver.spoil(driver.running()[0], Fault.MODEL_FAILED)
    for size_bytes in (2000, 2000, 1000):
        driver.submit("efficientnet_v2", size_bytes=size_bytes)
    driver.now += 12.3
    return driver


def status_of(driver: Driver, models: Sequence[ModelLoad] = ()) -> Status:
    """With what takes a life: incarnations, a million jobs. `models`: which are shown, none unless asked for."""
    found = told_pool.status(driver)
    first, *others = found.slots
    used = replace(first, incarnation=12, jobs_done=1234567, memory_bytes=12 * 2**30)
    return replace(found, slots=(used, *others), models=tuple(models))


STATUS = status_of(two_slots())

PIXELS = {"pixels": TensorSpec("float32", (-1, 64))}
TWO = {"a": TensorSpec("float32", (-1, 64)), "b": TensorSpec("int64", (-1,))}
SIGNATURES = {"other": Signature({}, {"y": TensorSpec("int64", None)}), "serving_default": Signature(PIXELS, TWO)}


LEFT_OUT = {"train": "it declares no outputs"}


def digits(**about: Any) -> ModelInfo:
    return ModelInfo("digits", "/models/digits", SIGNATURES, amiss={"other": FAILED}, **about)


def models_of(info: ModelInfo) -> Driver:
    """Slot 0 has loaded `digits`; slot 1, which has `slow` too, none of them yet."""
    driver = Driver(["digits"], ["digits", "slow"])
    driver.start()
    driver.hello(0)
    driver.feed(told.WorkerReady(0, 1, 1, (info,)))
    driver.hello(1)
    return driver


MODELS = told_pool.models(models_of(digits(stateful=False)))


class FakeClient:
    """A pool that is as a test wants it."""

    answer: Any = STATUS
    models_answer: Any = MODELS

    def __init__(self, endpoint: str | None, *, connect_timeout: float, reconnect_timeout: float) -> None:
        self.endpoint = endpoint
        assert connect_timeout < 5
        assert reconnect_timeout == 0, "who looks wants to know now"

    @property
    def pools(self) -> "tuple[FakeClient]":
        return (self,)

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def status(self) -> Any:
        return self.answer

    def models(self) -> Any:
        return self.models_answer


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(status_module, "Client", FakeClient)
    monkeypatch.setattr("pool.cli.models.Client", FakeClient)

    def run(command: Any, *argv: str, columns: int | None = None) -> str:
        if columns is not None:
            monkeypatch.setenv("COLUMNS", str(columns))
        done = in_process(command.name, *argv)
        assert (done.status, done.err) == (0, "")
        return done.out

    return run


def test_status_in_a_pipe_has_a_line_a_slot(shown: Any) -> None:
    lines = shown(status).splitlines()
    assert lines[0] == "pool 0.1.0 at ipc:///run/user/1000/pool/pool.sock, pid 77, up 1 h 1 min: SERVING"
    assert lines[1] == "3 jobs: 2 queued, 1 running, 4.9 KiB; answered: 12 done, 1 model failed"
    headings = "SLOT DEVICE UUID PID INC. STATE DOING JOBS GPU_MEM LOAD HOST_MEM MODELS"
    assert lines[3].split() == headings.replace("_", " ").split()
    row = lines[4]
    for word in (
        "GPU-5f1d4a3e ",
        "1234567",
        " 12 ",
        "READY",
        "running efficientnet_v2 for 12.3 s",
        "1,234,567",
        "12.0 GiB",
        "97/141 GiB",
        "87% 61 °C",
    ):
        assert word in row
    assert row.endswith("guesslang, efficientnet_v2, classifier[?]")  # brackets are no markup
    assert lines[-1] == f"slot 1 is FATAL: {WHY}"
    assert not any(line.endswith(" ") or "\x1b" in line for line in lines)


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_status_keeps_to_its_width_and_loses_nothing(shown: Any, columns: int) -> None:
    output = shown(status, columns=columns)
    assert max(map(len, output.splitlines())) <= columns
    for word in (
        "gpu:0",
        "GPU-5f1d4a3e",
        "1234567",
        "12",
        "READY",
        "FATAL",
        "1,234,567",
        "12.0 GiB",
        "guesslang",
        "61 °C",
    ):
        assert word in output
    assert "…" not in output


def test_status_as_json_is_the_pools_own(shown: Any) -> None:
    assert json.loads(shown(status, "--json")) == STATUS.to_dict()


def loaded() -> Driver:
    """One model has learned what it costs, what fits and what does not; another one is new."""
    names = ("embed", "other", "rare", "serving_default")
    rows = Signature({"x": TensorSpec("float32", (-1,))}, {"y": TensorSpec("float32", (-1,))})
    info = ModelInfo("m", "/m", dict.fromkeys(names, rows), False, amiss={"other": FAILED})
    driver = Driver(["m"], ["new"], models={"m": ModelPolicy(max_batch=16)})
    driver.start()
    driver.hello(0)
    driver.feed(told.WorkerReady(0, 1, 1, (info,)))
    for signature, count, batches, seconds in (
        ("rare", 4, 1, 1.0),
        ("serving_default", 8, 5, 0.0213),
        ("serving_default", 1, 3, 0.0042),
    ):
        for _ in range(batches):
            driver.submit(signature=signature, rows=count)
            driver.now += seconds
            driver.done(driver.running()[0])
    driver.submit(signature="serving_default", rows=16)
    driver.spoil(driver.running()[0], Fault.OUT_OF_MEMORY)
    for _ in range(2):
        driver.done(driver.running()[0])
    driver.submit(signature="embed", rows=4)
    driver.done(driver.running()[0], told.RowsChanged(DIFFERS))
    driver.done(driver.running()[0])
    for size_bytes in (3 << 20, 1 << 20, 1 << 20):
        driver.submit(signature="serving_default", rows=1, size_bytes=size_bytes)
    return driver


LOADS = status_of(two_slots(), told_pool.status(loaded()).models)


def test_status_has_what_waits_for_each_model(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeClient, "answer", LOADS)
    lines = shown(status).splitlines()
    heading = next(number for number, line in enumerate(lines) if line.startswith("MODEL "))
    headings = "MODEL QUEUED RUNNING JOBS/S ERRORS P50 P99 DEVICE TIME JOBS' SIZE MAX BATCH TAKES"
    assert " ".join(lines[heading].split()) == headings
    told = "m 2 1 1.80 0 ≤ 32.8 ms ≤ 1.05 s 1.12 s 5.0 MiB 16 1 row 4.20 ms, 8 rows 21.30 ms"
    assert " ".join(lines[heading + 1].split()) == told
    assert " ".join(lines[heading + 2].split()) == "new 0 0 0.00 0 – – 0.00 s 0 B 32 –"
    assert "m serving_default runs in batches of 8 rows, not 16 (max_batch), for lack of memory" in lines
    assert lines[-3] == f"m embed runs each job alone: {DIFFERS}"
    assert lines[-1] == f"m other failed every warm-up: {FAILED}"


@pytest.mark.parametrize("columns", [72, 80, 140])
def test_status_with_models_keeps_to_its_width(shown: Any, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    first, new = LOADS.models
    much = replace(first, name="efficientnet_v2", queued_jobs=1234, unanswered_jobs=1250)
    monkeypatch.setattr(FakeClient, "answer", replace(LOADS, models=(much, new)))
    output = shown(status, columns=columns)
    assert max(map(len, output.splitlines())) <= columns
    assert "1,234" in output
    assert ("21.30 ms" in output) == (columns >= 100)


def test_one_long_name_does_not_cost_the_others_their_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    rows = [("digits", "a stub", 7), ("n" * 150, "a stub", 12345)]
    columns: list[Column[tuple[str, str, int]]] = [
        Column("MODEL", lambda row: row[0]),
        Column("IS", lambda row: row[1], below=""),
        Column(">JOBS", lambda row: str(row[2])),
    ]
    console = Console(width=70)
    with console.capture() as captured:
        console.print(table(rows, *columns))
    heading, short, *long = captured.get().splitlines()
    assert heading.split() == ["MODEL", "IS", "JOBS"]
    assert short.split() == ["digits", "a", "stub", "7"]
    assert "".join(line.split()[0] for line in long) == "n" * 150
    assert long[0].split()[1:] == ["a", "stub", "12345"]
    assert all(len(line) <= 70 for line in long)


def test_models(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        FakeClient, "models_answer", told_pool.models(models_of(digits(stateful=True, left_out=LEFT_OUT)))
    )
    stateful = "stateful: its jobs stay in slot 0; a job that may have started is not run again"
    assert shown(models).splitlines() == [
        f"digits  slots 0, 1 (ready: 0)  {stateful}",
        "  /models/digits",
        "  serving_default  in   pixels: float32 [?, 64]",
        "                   out  a: float32 [?, 64]",
        "                        b: int64 [?]",
        "  other            in   –",
        "                   out  y: int64 of any shape",
        "  serving_default runs job by job: it keeps state",
        "  other runs job by job: it keeps state",
        f"  other failed every warm-up: {FAILED}",
        "  train is not offered: it declares no outputs",
        "",
        "slow  slot 1, not ready",
        "  no worker has loaded it; `pool status` says why",
    ]


def test_models_whose_jobs_run_together_say_why(shown: Any) -> None:
    lines = shown(models).splitlines()
    assert lines[0] == "digits  slots 0, 1 (ready: 0)"
    assert '  serving_default runs in batches: batching = "always"' in lines
    assert "  other runs job by job: some of its inputs or outputs have no rows" in lines


def test_a_model_with_a_handler_and_optimizations(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    decided = [Optimization(kind, kept, "takes 0.50 of the time") for kind, kept in (("freeze", True), ("jit", False))]
    info = digits(stateful=False, handler="digits:Digits", optimizations=tuple(decided))
    monkeypatch.setattr(FakeClient, "models_answer", told_pool.models(models_of(info)))
    assert shown(models).splitlines()[:3] == [
        "digits  slots 0, 1 (ready: 0)  handled by digits:Digits",
        "  slot 0: freeze kept: takes 0.50 of the time",
        "  slot 0: jit dropped: takes 0.50 of the time",
    ]


def test_a_model_that_a_session_has_written_says_where(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = models_of(digits(stateful=False))
    driver.submit("digits", signature=WRITING_RUN)
    driver.done(driver.running()[0])
    monkeypatch.setattr(FakeClient, "models_answer", told_pool.models(driver))
    title = "digits  slots 0, 1 (ready: 0)  a session wrote its variables, so all its jobs run in slot 0"
    assert shown(models).splitlines()[0] == title


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
    assert str(Tensor("float32", (-1, 64))) == "float32 [?, 64]"
    assert str(Tensor("string", None)) == "string of any shape"


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (None, ["NAME  UUID         MORE   N", "a     GPU-1,GPU-2  much   7", "b     –            –     12"]),
        (20, ["NAME    N", "uuid", "a       7", "GPU-1", "GPU-2", "b      12"]),
    ],
)
def test_a_narrow_table_has_facts_over_each_other_and_leaves_some_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int | None, lines: list[str]
) -> None:
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
    rows: list[dict[str, Any]] = [
        {"name": "a", "uuids": ["GPU-1", "GPU-2"], "more": "much", "n": 7},
        {"name": "b", "n": 12},
    ]
    show(
        table(
            rows,
            Column("NAME", lambda row: str(row["name"])),
            Column("UUID", lambda row: "\n".join(row.get("uuids", ())), below="NAME"),
            Column("MORE", lambda row: str(row.get("more", "")), below=""),
            Column(">N", lambda row: str(row["n"])),
            Column("NOBODY HAS IT", lambda _: "", optional=True),
        )
    )
    assert capsys.readouterr().out.splitlines() == lines


def test_a_picture() -> None:
    pixels = [16, 0, 16, 0] + [0, 0, 16, 0] + [16] * 4 + [0] * 4
    assert picture(pixels, 4, 16, shades=False).plain == "▀ █ \n▀▀▀▀"
    console = Console(force_terminal=True, color_system="256", width=80)
    with console.capture() as capture:
        console.print(picture(pixels, 4, 16, shades=True))
    assert "38;5;255;48;5;232" in capture.get()


def test_status_says_what_is_done_beside_the_worker(monkeypatch: pytest.MonkeyPatch, shown: Any) -> None:
    driver = Driver(["efficientnet_v2"], standby=True).serve()
    driver.feed(told.WorkerSpawned(0, 1, 1001))
    driver.feed(told.WorkerSpawned(0, 2, 1002))
    driver.feed(told.WorkerHello(0, 2))
    driver.feed(told.WorkerBeat(0, 2, Phase.STANDING_BY, "", ()))
    driver.now += 9.0
    monkeypatch.setattr(FakeClient, "answer", told_pool.status(driver))
    assert "idle; standby: READY" in " ".join(shown(status).split())
    driver.feed(told.RestartAsked(0))
    driver.feed(told.WorkerSpawned(0, 3, 1003))
    driver.feed(told.WorkerHello(0, 3))
    driver.feed(told.WorkerBeat(0, 3, Phase.LOADING, "efficientnet_v2", ()))
    driver.now += 3.0
    monkeypatch.setattr(FakeClient, "answer", told_pool.status(driver))
    assert "; incarnation 3 beside it: loading efficientnet_v2 for 3 s; standby: READY" in shown(status)
