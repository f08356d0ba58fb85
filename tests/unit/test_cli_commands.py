"""Commands that need no pool, and the exit statuses of all."""

import functools
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pool import Client
from pool.cli.options import IMPATIENT
from pool.devices import DeviceList, Gpu, PlannedDeviceList
from pool.wire.codec import BadFrame, packed, unpack
from support.commands import in_process
from support.fake_nvml import OTHER, FakeNvml

NOWHERE = "ipc:///nowhere/at/all.sock"


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return in_process


@pytest.fixture
def eight_gpus(pynvml: ModuleType) -> None:
    assert pynvml.open_sessions == 0


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        # pytest's own folders are too deep for the path of a socket.
        socket = f"{tempfile.gettempdir()}/pool-check-test.sock"
        (tmp_path / "config.toml").write_text(text.replace("@endpoint@", f"ipc://{socket}"))
        return str(tmp_path / "config.toml")

    return write


TWO_STUBS = """
[pool]
endpoint = "@endpoint@"
devices = ["cpu", "cpu"]
[[model]]
name = "a"
path = "stub:echo"
[[model]]
name = "b"
path = "stub:echo"
devices = "all"
"""

# --- exit statuses


@pytest.mark.parametrize(
    "argv",
    [
        ["nonsense"],
        ["status", "--nonsense"],
        ["submit"],
        ["submit", "m", "--timeout", "0"],
        ["bench", "m", "--in-flight", "16"],
        ["bench", "run", "m", "--in-flight", "0"],
        ["bench", "run", "m", "--duration", "0"],
        ["bench", "run", "m", "--jobs", "many"],
        ["bench", "run", "m", "--uniform"],
        ["bench", "run", "m", "--plot", "x.png"],
        ["bench", "open-loop", "m", "--rate", "0"],
        ["bench", "open-loop", "m", "--rate", "fast"],
        ["bench", "open-loop", "m", "--rate", "10", "--in-flight", "16"],
        ["bench", "open-loop", "m", "--rate", "10", "--plot", "x.png"],
        ["bench", "sweep", "m", "--rate", "100:50"],
        ["bench", "sweep", "m", "--rate", "1,2", "--jobs", "10"],
        ["bench", "sweep", "m", "--rate", "1,2", "--plot", "x.doc"],
        ["bench", "sweep", "m", "--rate", "1,2", "--plot", "/no/such/folder/x.png"],
        ["submit", "m", "--priority", "101"],
        ["explain", "-1"],
        ["explain", "first"],
        ["check", "--config", "/no/such/file"],
    ],
)
def test_a_usage_error_is_2(pool: Any, argv: list[str]) -> None:
    status, out, err = pool(*argv)
    assert (status, out) == (2, "")
    assert err.startswith("Usage: pool")


@pytest.mark.parametrize("command", ["status", "submit", "explain"])
def test_without_a_pool_it_is_1_with_one_line(pool: Any, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(IMPATIENT, "connect_timeout", 0.1)
    monkeypatch.setattr("pool.cli.submit.Client", functools.partial(Client, connect_timeout=0.1))
    status, out, err = pool(command, *(["m"] if command == "submit" else []), "--endpoint", NOWHERE)
    assert (status, out) == (1, "")
    assert err.startswith(f"pool: no pool answers at {NOWHERE}")
    assert err.count("\n") == 1


def test_a_missing_plot_library_is_said_before_anything_else(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "matplotlib.figure"):  # another test may have imported both
        monkeypatch.setitem(sys.modules, name, None)
    status, out, err = pool("bench", "sweep", "m", "--rate", "1,2", "--plot", "x.png", "--endpoint", NOWHERE)
    assert (status, out) == (1, "")
    assert err == "pool: --plot needs matplotlib: pip install 'tf-worker-pool[plot]'\n"


@pytest.mark.parametrize(
    "command", ["status", "models", "devices", "check", "submit", "explain", "bench", "demo", "help"]
)
def test_help_and_what_it_does_not_import(command: str) -> None:
    """Help is quick: neither TensorFlow nor numpy is loaded for it."""
    code = f"""if True:
        import sys
        from pool.cli import main
        try:
            main(["{command}", "--help"])
        finally:
            assert not {{"tensorflow", "numpy", "matplotlib", "workers"}} & set(sys.modules)
    """
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: pool {command}")


@pytest.mark.parametrize(
    ("group", "sentence"),
    [
        ((), "Run MODEL once and print its outputs."),
        (("bench",), "Send jobs of MODEL at a given rate, whether or not earlier ones are answered."),
        (("systemd",), "Write the unit where systemd finds it, and print the commands to run next."),
    ],
)
def test_the_list_of_commands_has_whole_sentences(pool: Any, group: tuple[str, ...], sentence: str) -> None:
    status, out, _ = pool(*group, "--help")
    assert status == 0
    assert sentence in " ".join(out.split())
    assert "..." not in out.partition("Commands:")[2]


def thin(*argv: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, where the client alone is installed."""
    code = f"import sys; sys.modules['pydantic'] = None\nfrom pool.cli import main\nmain({list(argv)!r})"
    return subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize(
    "argv",
    [["start", "--config", "x.toml"], ["start", "--help"], ["check"], ["devices"], ["demo"], ["systemd", "print"]],
)
def test_the_thin_client_says_in_one_line_what_it_cannot_run(argv: list[str]) -> None:
    done = thin(*argv)
    assert (done.returncode, done.stdout) == (2, "")
    needs = "needs more than the client: pip install 'tf-worker-pool[worker]', or [gpu] for NVIDIA GPUs"
    assert done.stderr.startswith(f"pool: `pool {argv[0]}` {needs} (")
    assert "pydantic" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["submit", "status", "bench", "help"])
def test_the_thin_client_has_the_commands_of_a_client(command: str) -> None:
    done = thin(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: pool {command}")
    listed = thin("--help").stdout
    assert f"\n  {command} " in listed
    assert re.search(r"\n  start +Needs tf-worker-pool\[worker\], which is not installed\.", listed)


# --- check


def test_check_prints_the_plan(pool: Any, config: Any) -> None:
    path = config(TWO_STUBS)
    status, out, err = pool("check", "--config", path)
    assert (status, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert ["0", "cpu:0", "a,", "b"] in lines
    assert ["1", "cpu:1", "b"] in lines
    assert ["a", "–", "–", "0", "a", "stub", "for", "tests", "stub:echo"] in lines
    assert ["a", "1", "cpu:0", "every", "CPU", "has", "a", "model"] in lines
    assert ["b", "2", "cpu:0,", "cpu:1", "it", "is", "on", "every", "device"] in lines
    assert out.endswith(f"OK: `pool start --config {path}` would serve this\n")
    spaced = Path(path).rename(Path(path).with_name("my config.toml"))
    assert in_process("check", "--config", str(spaced)).out.endswith(
        f"OK: `pool start --config '{spaced}'` would serve this\n"
    )


def test_check_as_json(pool: Any, config: Any) -> None:
    status, out, _ = pool("check", "--config", config(TWO_STUBS), "--json")
    found = json.loads(out)
    assert status == 0
    assert [slot["models"] for slot in found["slots"]] == [["a", "b"], ["b"]]
    assert [model["slots"] for model in found["models"]] == [[0], [0, 1]]
    assert found["problems"] == []


def test_check_of_the_built_in_configuration(pool: Any) -> None:
    status, out, _ = pool("check", "--json")
    found = json.loads(out)
    assert [(model["name"], model["kind"]) for model in found["models"]] == [("digits", "a SavedModel")]
    assert status == (0 if found["tensorflow"] else 1)


def test_check_refuses_with_every_mistake(pool: Any, config: Any) -> None:
    status, out, err = pool("check", "--config", config('[pool]\nlanez = 2\ndevices = "gpu"\n'))
    assert (status, out) == (2, "")
    assert "[pool] lanez" in err
    assert "[pool] devices" in err
    assert "Traceback" not in err


def test_check_says_what_cannot_be_served(pool: Any, config: Any, tmp_path: Path) -> None:
    for name in ("empty", "versions/1", "versions/12", "named/old", "good"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "versions/1/saved_model.pb").touch()
    (tmp_path / "versions/12/saved_model.pb").touch()
    (tmp_path / "named/old/saved_model.pb").touch()
    (tmp_path / "good/saved_model.pbtxt").touch()
    (tmp_path / "frozen.pb").touch()
    (tmp_path / "model.onnx").touch()
    paths = ("empty", "versions", "named", "good", "frozen.pb", "model.onnx")
    models = "".join(f'[[model]]\nname = "{path[:4]}"\npath = "{path}"\n' for path in paths)
    status, out, err = pool(
        "check", "--config", config(f'[pool]\nendpoint = "@endpoint@"\ndevices = ["cpu"]\n{models}')
    )
    assert status == 1
    assert err.startswith("pool: this pool would not start: model empt: ")
    assert "it has no saved_model.pb" in err
    assert f"give one of them, such as {tmp_path}/named/old" in err
    assert "model mode: " in err
    assert not [name for name in ("vers", "good", "froz") if f"model {name}: " in err]
    assert all(kind in out for kind in ("version 12, a SavedModel", "a frozen graph", "not served"))
    assert "fine" not in out


def test_check_says_which_library_of_ops_is_missing(pool: Any, config: Any, tmp_path: Path) -> None:
    (tmp_path / "good.so").touch()
    text = '[pool]\nendpoint = "@endpoint@"\ndevices = ["cpu"]\n[tensorflow]\nop_libraries = ["good.so", "bad.so"]\n'
    model = '[[model]]\nname = "m"\npath = "stub:echo"\n'
    status, _, err = pool("check", "--config", config(text + model))
    assert (status, err) == (
        1,
        f"pool: this pool would not start: op_libraries of [tensorflow]: there is no file {tmp_path}/bad.so\n",
    )


def test_check_says_when_tensorflow_is_missing(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pool.cli.check.installed_tensorflow", lambda: None)
    status, out, err = pool("check")
    assert status == 1
    assert "not installed" in out
    assert "pip install 'tf-worker-pool[worker]'" in err


@pytest.mark.usefixtures("eight_gpus")
def test_check_with_gpus(pool: Any, config: Any) -> None:
    text = '[pool]\nendpoint = "@endpoint@"\n[[model]]\nname = "a"\npath = "stub:echo"\nreplicas = 7\n'
    status, out, _ = pool("check", "--config", config(text))
    assert status == 0
    assert "`replicas` = 7" in out
    assert "no worker is started on gpu:3: no model is placed there" in out, "the last of the smallest"
    assert "GPU-1a000000" in out


SHARED = """
[pool]
endpoint = "@endpoint@"
devices = [0]
workers_per_device = 2
[[model]]
name = "a"
path = "stub:echo"
tensorflow = { per_process_gpu_memory_fraction = 0.5, jit = true }
[[model]]
name = "b"
path = "stub:echo"
"""


@pytest.mark.usefixtures("eight_gpus")
def test_check_shows_the_workers_that_share_a_device_and_what_is_different_in_them(pool: Any, config: Any) -> None:
    path = config(SHARED)
    status, out, _ = pool("check", "--config", path, "--json")
    found = json.loads(out)
    assert status == 0
    assert [(slot["label"], slot["models"]) for slot in found["slots"]] == [("gpu:0", ["a"])] * 2 + [
        ("gpu:0", ["b"])
    ] * 2
    fractions = [slot["tensorflow"]["per_process_gpu_memory_fraction"] for slot in found["slots"]]
    assert fractions == [0.25, 0.25, "unlimited", "unlimited"], "in the words of the file"
    assert {slot["tensorflow"]["intra_op_parallelism_threads"] for slot in found["slots"]} == {"auto"}
    _, out, _ = pool("check", "--config", path)
    assert "per_process_gpu_memory_fraction = 0.25" in out
    assert "jit = true" in out
    assert "hint: no worker" not in out


@pytest.mark.usefixtures("eight_gpus")
def test_check_refuses_fractions_that_do_not_fit(pool: Any, config: Any) -> None:
    text = SHARED + "tensorflow = { per_process_gpu_memory_fraction = 0.75 }\n"
    status, out, err = pool("check", "--config", config(text))
    assert (status, out) == (2, "")
    assert err.startswith("pool: gpu:0: its 4 workers may take 1.25 times its memory (0.25 for a; ")


@pytest.mark.usefixtures("eight_gpus")
def test_check_tells_what_never_fits_from_what_does_not_fit_now(pool: Any, config: Any, nvml: FakeNvml) -> None:
    text = '[pool]\nendpoint = "@endpoint@"\ndevices = [0, 1]\n'
    models = "".join(f'[[model]]\nname = "m{i}"\npath = "stub:echo"\ndevice_memory = "9GiB"\n' for i in range(2))
    assert pool("check", "--config", config(text + models))[0] == 0
    nvml.say(OTHER, used=8 * 2**30)
    status, out, err = pool("check", "--config", config(text + models))
    assert (status, out) == (1, ""), "a service manager may try again"
    assert err.splitlines()[-1].split() == ["gpu:1", "16.0", "GiB", "8.0", "GiB", "8.0", "GiB"]
    assert pool("check", "--config", config(text + models.replace("9GiB", "17GiB")))[0] == 2


# --- devices


@pytest.mark.usefixtures("eight_gpus")
def test_devices_lists_the_gpus(pool: Any) -> None:
    status, out, err = pool("devices")
    assert (status, err) == (0, "")
    row = out.splitlines()[5]
    about = "4 NVIDIA A100-SXM4-40GB GPU-88000000-0000-4000-8000-000000000000 0000:88:00.0 1.0 of 40.0 GiB"
    assert " ".join(row.split()) == about
    assert 'devices = "auto" makes 8 slots: gpu:0, gpu:1' in out


@pytest.mark.usefixtures("eight_gpus")
def test_devices_numbers_what_the_pool_may_use(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,4")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = pool("devices")
    lines = out.splitlines()
    assert status == 0
    assert max(map(len, lines)) <= 80
    assert lines[3].split()[0] == "GPU-89000000-0000-4000-8000-000000000000"
    assert [line.split()[0] for line in lines[2:18:2]] == ["0", "1", *["–"] * 6]
    assert "CUDA_VISIBLE_DEVICES=5,4 lets a pool use 2 of 8 GPUs" in out
    assert 'devices = "auto" makes 2 slots: gpu:0, gpu:1' in out


@pytest.mark.usefixtures("eight_gpus")
def test_devices_shows_the_plan_of_a_configuration(pool: Any, config: Any) -> None:
    text = '[pool]\nendpoint = "@endpoint@"\ndevices = [4, "cpu"]\n'
    path = config(text + '[[model]]\nname = "a"\npath = "stub:echo"\ndevice_memory = "20GiB"\n')
    status, out, _ = pool("devices", "--config", path)
    assert status == 0
    row = ["0", "gpu:4", "GPU-88000000", "NVIDIA", "A100-SXM4-40GB", "40.0", "GiB", "39.0", "GiB", "a"]
    assert row in [line.split() for line in out.splitlines()]
    plan = json.loads(pool("devices", "--json", "--config", path)[1])["plan"]
    assert [(slot["label"], slot["used_bytes"], slot["models"]) for slot in plan] == [
        ("gpu:4", 2**30, ["a"]),
        ("cpu:0", 0, []),
    ]


@pytest.mark.usefixtures("eight_gpus")
def test_devices_lists_the_instances_of_a_gpu(pool: Any, monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml) -> None:
    card, instance = "GPU-88000000-0000-4000-8000-000000000000", "MIG-aaaaaaaa-42e4-5de3-91c7-45d71c87eb3f"
    nvml.say(card, instances=[instance])
    monkeypatch.setenv("COLUMNS", "200")
    lines = [line.split() for line in pool("devices")[1].splitlines()]
    assert ["MIG", "NVIDIA", "A100-SXM4-40GB", card] == lines[5][:4]
    assert lines[6] == ["–", "NVIDIA", "A100-SXM4-40GB", "MIG", "2g.10gb", instance, "–", "1.0", "of", "10.0", "GiB"]


@pytest.mark.usefixtures("eight_gpus")
def test_devices_as_json(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = json.loads(pool("devices", "--json")[1])
    assert list(found) == ["gpus", "reason", "environment", "usable", "auto", "cpu_cores", "notes"]
    assert len(found["gpus"]) == 8
    assert found["usable"] == []
    assert [device["label"] for device in found["auto"]] == ["cpu:0", "cpu:1"]
    assert found["environment"]["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.usefixtures("eight_gpus")
def test_the_records_of_devices_read_what_is_printed(pool: Any, config: Any, nvml: FakeNvml) -> None:
    nvml.say("GPU-88000000-0000-4000-8000-000000000000", instances=["MIG-aaaaaaaa-42e4-5de3-91c7-45d71c87eb3f"])
    path = config('[pool]\nendpoint = "@endpoint@"\n[[model]]\nname = "a"\npath = "stub:echo"\n')
    printed = json.loads(pool("devices", "--json")[1])
    found = unpack(DeviceList, packed(printed))
    assert found.to_dict() == printed, "and nothing else is there"
    assert [type(each) for each in found.gpus[4].instances or ()] == [Gpu]
    assert [device.kind for device in found.auto] == ["gpu"] * 8
    printed = json.loads(pool("devices", "--json", "--config", path)[1])
    planned = unpack(PlannedDeviceList, packed(printed))
    assert planned.to_dict() == printed
    assert [slot.models for slot in planned.plan] == [("a",)] * 8
    with pytest.raises(BadFrame, match="auto: kind: expected one of gpu, cpu, got 'tpu'"):
        unpack(DeviceList, packed({**printed, "auto": [{**printed["auto"][0], "kind": "tpu"}]}))


def test_devices_without_nvml_says_why(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    status, out, _ = pool("devices")
    assert status == 0
    assert "no GPU is used: NVML's Python module is not installed" in out
    assert 'devices = "auto" makes 2 slots: cpu:0, cpu:1' in out


@pytest.mark.parametrize(
    "arguments", [("drain", "1", "--cluster", "0"), ("explain", "--cluster", "7"), ("start", "--ray", "x")]
)
def test_what_stands_after_an_option_without_its_address_is_not_taken_for_one(arguments: tuple[str, ...]) -> None:
    done = in_process(*arguments)
    assert done.status == 2
    assert "is not HOST:PORT; write what is no address before this option" in " ".join(done.err.split())


@pytest.mark.parametrize("option", ["--endpoint=p", "--watch=1"])
def test_a_cluster_is_asked_as_a_whole_and_once(option: str) -> None:
    done = in_process("status", "--cluster", "127.0.0.1:1", option)
    assert done.status == 2
    assert f"--cluster and {option.partition('=')[0]} are not for one command" in " ".join(done.err.split())
