"""What `config.toml` may say, and how its mistakes are told."""

import dataclasses
import re
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pool.config import Settings, load_settings, parse_settings, with_demo
from pool.config.client import ClientSection
from pool.config.gateway import GatewaySection
from pool.config.renamed import RENAMED
from pool.config.settings import ModelSection
from pool.config.tensorflow import DeviceSection, TensorFlowSection
from pool.errors import InvalidConfig
from pool.keys import make_pair
from pool.wire.worker_messages import TensorFlowSettings

EXAMPLE = Path(__file__).parents[2] / "config.toml"


def mistakes(data: dict[str, object]) -> list[str]:
    with pytest.raises(InvalidConfig) as caught:
        parse_settings(data, "config", Path("/base"))
    return str(caught.value).splitlines()


def file_mistakes(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "pool.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidConfig) as caught:
        load_settings(file)
    return [line.removeprefix(str(file)) for line in str(caught.value).splitlines()]


# --- the schema


def test_the_tensorflow_section_is_that_of_the_protocol() -> None:
    assert list(TensorFlowSection.model_fields) == [field.name for field in dataclasses.fields(TensorFlowSettings)]
    message = parse_settings(
        {"tensorflow": {"device_count": {"CPU": 1}, "jit": True}}, "x", Path("/")
    ).tensorflow.message()
    assert message == TensorFlowSettings(True, 0.0, True, False, 0, 0, {"CPU": 1}, True)


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().pool.lanes = 3


def test_the_example_says_the_defaults() -> None:
    assert load_settings(EXAMPLE) == Settings()


def test_the_example_has_the_keys_of_daily_life_and_its_model_loads(tmp_path: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert text.index("[[model]]\n") < text.index("[pool]\n"), "what most people change comes first"
    shown = tmp_path / "config.toml"
    shown.write_text(re.sub(r"(?m)^# (?=\[|[a-z_]+ +=)", "", text), encoding="utf-8")
    data = tomllib.loads(shown.read_text(encoding="utf-8"))
    sections = [table[0] if isinstance(table, list) else table for table in data.values()]
    assert 55 <= sum(map(len, sections)) <= 70
    keys = tmp_path / "keys"
    (keys / "clients").mkdir(parents=True, mode=0o700)
    make_pair(keys, "server")
    loaded = load_settings(shown)
    assert loaded.model == (ModelSection(name="digits", path=str(tmp_path / "models/digits")),)
    assert loaded.client == (ClientSection(name="alice"),)
    assert loaded.gateway == GatewaySection(), "it is shown, and without it there is none"
    assert loaded.security is not None
    assert loaded.security.clients == str(keys / "clients")
    assert loaded.model_copy(update={"model": (), "client": (), "gateway": None, "security": None}) == Settings()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("auto", "auto"),
        ("cpu", ("cpu",)),
        ("GPU-1", ("GPU-1",)),
        ([0, 1], (0, 1)),
        (["cpu", "cpu"], ("cpu", "cpu")),
        ([[0, "GPU-1"], "MIG-2"], ((0, "GPU-1"), "MIG-2")),
    ],
)
def test_devices_of_the_pool(written: object, read: object) -> None:
    assert parse_settings({"pool": {"devices": written}}, "config", Path("/")).pool.devices == read


@pytest.mark.parametrize(
    ("devices", "told"),
    [
        ([], "the list of devices is empty; write"),
        ([[]], "a group of devices is empty; write"),
        ([[0, "cpu"]], "a group cannot hold the CPU; write"),
        ([0, [1, 0]], "0 is in the list twice; write each device once"),
        (["0"], '"0" is a text, not a device number; write 0 without the quotes'),
        ([-1], "-1 is not a device number; write"),
        ([True], "True is not a device; write"),
        (["GPU-"], "'GPU-' is not a device; write"),
        ("GPU-1,GPU-2", "'GPU-1,GPU-2' is more than one device; write"),
        ("all", "'all' is not a device; write"),
        (1.5, "1.5 is not a list of devices; write"),
    ],
)
def test_devices_that_are_refused(devices: object, told: str) -> None:
    (line,) = mistakes({"pool": {"devices": devices}})
    assert line.startswith(f"config: [pool] devices: {told}")


@pytest.mark.parametrize(
    ("section", "told"),
    [
        (
            {"tensorflow": {"gpu_options": {}}},
            "[tensorflow] gpu_options: write its keys without it, such as allow_growth",
        ),
        ({"device": [{"tensorflow": {}}]}, "device[0].use: is missing; write a device, such as use = 0"),
        ({"device": [{"use": "gpu:0"}]}, "device[0].use: 'gpu:0' is not a device; write one of the pool's devices:"),
        ({"device": [{"use": 0}, {"use": 0}]}, "device: two sections use 0; write the keys of both into one"),
        ({"device": {"use": 0}}, "device: is not a list of devices; write [[device]] with two brackets above each"),
        ({"device": [{"use": 0, "lanes": 2}]}, "device[0].lanes: unknown key; 'lanes' is a key of [pool]"),
        ({"device": [{"use": 0, "tensorflow": 1}]}, "device[0].tensorflow: is not a table; write one such as {"),
        (
            {"device": [{"use": 0, "tensorflow": {"visible_device_list": "1"}}]},
            "device[0].tensorflow.visible_device_list: a worker sees only the GPUs of its slot; set `[pool]",
        ),
    ],
)
def test_overrides_of_a_device_that_are_refused(section: dict[str, object], told: str) -> None:
    (line,) = mistakes(section)
    assert line.startswith(f"config: {told}")


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"tensorflow": {"alow_growth": True}}, "tensorflow.alow_growth: unknown key; did you mean 'allow_growth'?"),
        (
            {"tensorflow": {"per_process_gpu_memory_fraction": 2.0}},
            "tensorflow.per_process_gpu_memory_fraction: 2.0 is not a number above 0, at most 1; write",
        ),
        ({"tensorflow": True}, "tensorflow: is not a table; write one such as { allow_growth = false }"),
        (
            {"layer_devices": "least-loaded", "copy_per_device": True},
            'copy_per_device: layer_devices = "least-loaded" spreads one copy over the devices, but copy_per',
        ),
        (
            {"layer_devices": "balanced"},
            'layer_devices: \'balanced\' says no devices; write "least-loaded", or rules such as [{ layers = "co',
        ),
        (
            {"layer_devices": [{"layers": "a", "device": "least-loaded"}]},
            "layer_devices[0].device: 'least-loaded' is not a",
        ),
        ({"layer_devices": ["conv1"]}, "layer_devices[0]: is not a rule; write one such as { layers = "),
        (
            {"layer_devices": [{"device": "/cpu:0"}]},
            "layer_devices[0].layers: is missing; write a pattern over names of nodes",
        ),
        (
            {"layer_devices": [{"layers": "a"}]},
            "layer_devices[0].device: is missing; write a device of the worker, such as",
        ),
        (
            {"layer_devices": [{"layers": "(", "device": "/cpu:0"}]},
            "layer_devices[0].layers: '(' is not a pattern: missing ), unterminated subpattern at position 0; write a",
        ),
        (
            {"layer_devices": [{"layers": "a", "device": "GPU-1"}]},
            'layer_devices[0].device: \'GPU-1\' is not a device of a worker; write "/cpu:0" or "/gpu:0"; each',
        ),
        (
            {"layer_devices": [{"layer": "a", "layers": "a", "device": "/cpu:0"}]},
            "layer_devices[0].layer: unknown key; did you",
        ),
        ({"handler": "a.b"}, "handler: 'a.b' does not name a class; write its module and its name"),
        ({"handler_path": "x"}, "handler_path: is set without `handler`; set `handler`, or leave this out"),
        (
            {"handler": "a:B", "handler_options": {"at": date(1999, 1, 1)}},
            "handler_options: holds a value that JSON cannot",
        ),
        (
            {"advanced": {"grappler": True}},
            'advanced.grappler: is not a table; write one such as { remapping = "off" }',
        ),
        (
            {"advanced": {"grappler": {"remaping": "on"}}},
            "advanced.grappler: 'remaping' is not one of its passes: arithmetic_optimization, ",
        ),
        (
            {"advanced": {"grappler": {"remapping": "ON"}}},
            'advanced.grappler: \'ON\' is not a choice for remapping; write "on", "off" or "aggressive"',
        ),
        (
            {"advanced": {"tolerance": 0}},
            'advanced.tolerance: 0 is not a tolerance; write "auto", or a number between 0 and 1 such as',
        ),
        (
            {"advanced": {"clear_devices": "true"}},
            "advanced.clear_devices: 'true' is not a choice; write 'missing', 'all' or 'off'",
        ),
    ],
)
def test_overrides_of_a_model_that_are_refused(keys: dict[str, object], told: str) -> None:
    (line,) = mistakes({"model": [{"name": "m", "path": "/m", **keys}]})
    assert line.startswith(f"config: model[0].{told}")


def test_libraries_of_ops_are_found_beside_the_file_in_overrides_too() -> None:
    override = {"op_libraries": ["ops.so"]}
    data = {
        "device": [{"use": 0, "tensorflow": override}],
        "model": [{"name": "m", "path": "/m", "tensorflow": override}],
    }
    settings = parse_settings(data, "config", Path("/base"))
    assert settings.device[0].tensorflow.op_libraries == settings.model[0].tensorflow.op_libraries == ("/base/ops.so",)
    assert settings.model[0].tensorflow.model_dump() == {"op_libraries": ("/base/ops.so",)}
    plain = parse_settings({"model": [{"name": "m", "path": "/m"}]}, "config", Path("/base"))
    assert plain.model[0].tensorflow.model_dump() == {}


def test_the_line_of_an_override_is_told(tmp_path: Path) -> None:
    text = '[[model]]\nname = "m"\npath = "/m"\n\ntensorflow = { jit = 1 }\n'
    (line,) = file_mistakes(tmp_path, text)
    assert line.startswith(":5: model[0].tensorflow.jit: 1 is neither true nor false")


def test_devices_of_a_model() -> None:
    def loaded(devices: object) -> object:
        return parse_settings(
            {"model": [{"name": "m", "path": "/m", "devices": devices}]}, "c", Path("/")
        ).model[0].devices  # fmt: skip

    assert [loaded(devices) for devices in ("auto", "all", [1], "cpu")] == ["auto", "all", (1,), ("cpu",)]
    (line,) = mistakes({"model": [{"name": "m", "path": "/m", "devices": ["cpu", "cpu"]}]})
    assert line == "config: model[0].devices: 'cpu' is in the list twice; write each device once"


@pytest.mark.parametrize("good", ["tcp://127.0.0.1:5555", "tcp://127.9.9.9:*", "tcp://[::1]:1"])
def test_tcp_endpoints(good: str) -> None:
    assert parse_settings({"pool": {"listen": [good]}}, "c", Path("/")).pool.listen == (good,)


@pytest.mark.parametrize(
    "bad", ["ipc:///x", "tcp://host", "tcp://host:0", "tcp://host:70000", "tcp://:1", "tcp://a b:1"]
)
def test_other_endpoints_are_not_listened_on(bad: str) -> None:
    assert mistakes({"pool": {"listen": ["tcp://127.0.0.1:1", bad]}}) == [
        f"config: [pool] listen[1]: {bad!r} is not a tcp endpoint;"
        ' write "tcp://ADDRESS:PORT", such as "tcp://127.0.0.1:5555"'
    ]


@pytest.mark.parametrize(
    ("address", "why"),
    [
        *((each, "names no address of this machine in numbers") for each in ("*", "host", "localhost", "lo")),
        *((each, "can be reached from other machines") for each in ("0.0.0.0", "[::]", "192.168.1.7", "128.0.0.1")),
        ("[fe80::1%eth0]", "can be reached from other machines"),
    ],
)
def test_without_keys_only_loopback_addresses_are_listened_on(address: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'[pool]\ndevices = "cpu"\nlisten = [\n  "tcp://127.0.0.1:1",\n  "tcp://{address}:5555",\n]\n')
    with pytest.raises(InvalidConfig) as caught:
        load_settings(file)
    assert str(caught.value).startswith(f"{file}:3: [pool] listen[1]: 'tcp://{address}:5555' {why}")


def test_the_endpoint_is_a_local_socket_with_a_path_that_fits() -> None:
    good = "ipc:///run/pool/pool.sock"
    assert parse_settings({"pool": {"endpoint": good}}, "c", Path("/")).pool.endpoint == good
    for bad in ("tcp://127.0.0.1:1", "ipc://relative", "ipc://@abstract", "/run/x"):
        (line,) = mistakes({"pool": {"endpoint": bad}})
        assert f"[pool] endpoint: {bad!r} is not a local socket; write" in line
    (line,) = mistakes({"pool": {"endpoint": "ipc:///" + "ä" * 54}})
    assert "the path has 109 bytes; write one of at most 107" in line


# --- scheduling


def model(**keys: object) -> ModelSection:
    return parse_settings({"model": [{"name": "m", "path": "/m", **keys}]}, "config", Path("/")).model[0]


def test_the_largest_allowed_size_is_the_largest_batch() -> None:
    assert model().max_batch == 32
    assert model(max_batch=5).max_batch == 5
    assert model(allowed_batch_sizes=[1, 8, 64]).max_batch == 64
    assert model(allowed_batch_sizes=[]).max_batch == 32
    both = model(allowed_batch_sizes=[4, 8], max_batch=8)
    assert (both.allowed_batch_sizes, both.max_batch) == ((4, 8), 8)
    assert ModelSection(name="m", path="/m", allowed_batch_sizes=(2, 3)).max_batch == 3


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"max_batch": 0}, "max_batch: 0 is too small; write 1 or more"),
        ({"max_batch": 65537}, "max_batch: 65537 is too large; write 65536 or less"),
        ({"max_batch": True}, "max_batch: True is not a whole number; write digits only, such as 2"),
        ({"batch_wait": -1}, "batch_wait: -1 is not a duration; write"),
        ({"allowed_batch_sizes": 8}, "allowed_batch_sizes: 8 is not a list; write a list such as []"),
        ({"allowed_batch_sizes": [1, 0]}, "allowed_batch_sizes[1]: 0 is too small; write 1 or more"),
        ({"allowed_batch_sizes": [1, "8"]}, "allowed_batch_sizes[1]: '8' is not a whole number"),
        ({"allowed_batch_sizes": [70000]}, "allowed_batch_sizes[0]: 70000 is too large; write 65536 or less"),
        (
            {"allowed_batch_sizes": [8, 8]},
            "allowed_batch_sizes: [8, 8] does not rise; write each size once, the smallest first, such as [1, 8, 32]",
        ),
        (
            {"allowed_batch_sizes": [1, 8], "max_batch": 32},
            "allowed_batch_sizes: ends with 8 and max_batch is 32; write the same number, or leave max_batch out",
        ),
        ({"weight": 0}, "weight: 0 is too small; write 0.001 or more"),
        ({"weight": 5e-324}, "weight: 5e-324 is too small; write 0.001 or more"),
        ({"weight": 1e308}, "weight: 1e+308 is too large; write 1000 or less"),
        ({"weight": float("inf")}, "weight: inf is not a number; write one such as 0.5"),
        ({"max_jobs": 0}, 'max_jobs: 0 is not a whole number from 1; write "unlimited", or one such as 1000'),
        ({"max_bytes": "many"}, "max_bytes: 'many' is not a size; write"),
    ],
)
def test_how_a_model_cannot_be_scheduled(keys: dict[str, object], told: str) -> None:
    (line,) = mistakes({"model": [{"name": "m", "path": "/m", **keys}]})
    assert line.startswith(f"config: model[0].{told}")


def test_the_bounds_of_a_client() -> None:
    def queue(**keys: object) -> tuple[object, object]:
        section = parse_settings({"queue": keys}, "config", Path("/")).queue
        return section.client_max_jobs, section.client_max_bytes

    assert queue() == queue(client_max_jobs="auto", client_max_bytes="auto") == ("auto", "auto")
    assert queue(client_max_jobs=5, client_max_bytes="1KiB") == (5, 1024)
    assert mistakes({"queue": {"client_max_jobs": 0, "client_max_bytes": "all"}}) == [
        'config: [queue] client_max_jobs: 0 is not a whole number from 1; write "auto", or one such as 1000',
        'config: [queue] client_max_bytes: \'all\' is not a size; write "auto", or one such as "512MiB"',
    ]


def test_quarantine_can_be_switched_off() -> None:
    assert parse_settings({"quarantine": {"keep": "off"}}, "config", Path("/")).quarantine.keep is None
    (line,) = mistakes({"quarantine": {"keep": -1}})
    assert line == 'config: [quarantine] keep: -1 is not a whole number from 1; write "off", or one such as 1000'


def test_crash_reports_can_be_kept_in_memory_only() -> None:
    assert parse_settings({"crash_reports": {"keep": "off"}}, "config", Path("/")).crash_reports.keep is None
    (line,) = mistakes({"crash_reports": {"max_bytes": "many"}})
    assert line.startswith("config: [crash_reports] max_bytes: ")


# --- mistakes


def test_all_mistakes_are_told_at_once_each_with_its_line(tmp_path: Path) -> None:
    text = """\
lanes = 3
[pool]
lane = 3
ready = "al"
[tensorflow]
visible_device_list = "0"
allow_growth = 1
device_count = { TPU = 1, CPU = -1 }
[queu]
[queue]
max_jobs = "2"
max_bytes = "2Gb"
[[model]]
name = "a"
[[model]]
name = "a"
path = ""
devices = "all"
replicas = 2
device_memory = "6 gigs"
max_batches = 2
batch_wait = "soon"
"""
    size = 'write a number with its unit, such as "2GiB", "512MiB" or "1GB", or whole bytes'
    assert file_mistakes(tmp_path, text) == [
        ":1: lanes: unknown section; 'lanes' is a key of [pool]",
        ":3: [pool] lane: unknown key; did you mean 'lanes'?",
        ":4: [pool] ready: 'al' is not a choice; write 'all', 'any' or 'strict'",
        ":6: [tensorflow] visible_device_list: a worker sees only the GPUs of its slot; set `[pool] devices` instead",
        ":7: [tensorflow] allow_growth: 1 is neither true nor false; write true or false, without quotes",
        ":8: [tensorflow] device_count.TPU: 'TPU' is not a choice; write 'CPU' or 'GPU'",
        ":8: [tensorflow] device_count.CPU: -1 is too small; write 0 or more",
        ":9: [queu]: unknown section; did you mean 'queue'?",
        ":11: [queue] max_jobs: '2' is not a whole number; write digits only, such as 2",
        f":12: [queue] max_bytes: '2Gb' is not a size; {size}",
        ':13: model[0].path: is missing; write a path, such as path = "models/digits"',
        ":16: model[1].name: model[0] also has the name 'a'; write another name",
        ":17: model[1].path: is empty; write a text of at least one character",
        ":19: model[1].replicas: `devices` already says where the model is served;"
        ' leave `replicas` out, or write devices = "auto"',
        ':20: model[1].device_memory: \'6 gigs\' is not a size; write "auto", or one such as "512MiB"',
        ":21: model[1].max_batches: unknown key; did you mean 'max_batch'?",
        ':22: model[1].batch_wait: \'soon\' is not a duration; write "off", or one such as "120s"',
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[pool]]", ":1: [pool]: is not a section; write [pool], with one bracket, above its keys"),
        ("[model]", ":1: model: is not a list of models; write [[model]] with two brackets above each model"),
        ("model = [1]", ":1: model[0]: is not a model; write [[model]] above its keys"),
        ("pool.listen = 3", ":1: [pool] listen: 3 is not a list; write a list such as []"),
        (
            "[tensorflow]\ndevice_count = 1",
            ":2: [tensorflow] device_count: 1 is not a table; write one such as { CPU = 1 }",
        ),
        (
            '[pool]\ncpu_affinity = ["0-"]',
            ":2: [pool] cpu_affinity: '0-' is not a list of cores;"
            ' write "off", "auto", or a list of cores for each CPU worker: ["0-3", "4-7"]',
        ),
        ("[pool]\nlanes = 17", ":2: [pool] lanes: 17 is too large; write 16 or less"),
        (
            "[advanced]\nspin_us = 20000",
            ':2: [advanced] spin_us: 20000 is not a whole number from 1 to 10000; write "off", or one such as 50',
        ),
        ("[pool]\nlanes = 2.0", ":2: [pool] lanes: 2.0 is not a whole number; write digits only, such as 2"),
        ("[pool]\nendpoint = 1", ":2: [pool] endpoint: 1 is not a text; write a text in quotes"),
        (
            "[tensorflow]\nper_process_gpu_memory_fraction = nan",
            ":2: [tensorflow] per_process_gpu_memory_fraction: nan is not a number above 0, at most 1;"
            ' write "unlimited", or one such as 0.5',
        ),
        (
            "[restart]\nperiod = 0",
            ':2: [restart] period: the duration is zero; write more than that, such as "1s"',
        ),
        ("[pool]\nx = = 2", ":2: is not TOML: Invalid value in column 5; correct the line"),
        ("x = [", ": is not TOML: Invalid value (at end of document); correct the end of the file"),
    ],
)
def test_one_mistake(tmp_path: Path, text: str, told: str) -> None:
    assert file_mistakes(tmp_path, text) == [told]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "a\n"])
def test_a_name_is_plain(name: str) -> None:
    (line,) = mistakes({"model": [{"name": name, "path": "x"}]})
    assert line.startswith(f"config: model[0].name: {name!r} is not a name; write letters, digits")


def test_every_repeated_name_is_told() -> None:
    models = [{"name": name, "path": "x"} for name in "abab"]
    assert [line.split(": ")[1] for line in mistakes({"model": models})] == ["model[2].name", "model[3].name"]


@pytest.mark.parametrize(
    "data",
    [
        {"model": None},
        {"model": [None, {}]},
        {"pool": None},
        {1: 2},
        {"model": [{"name": []}]},
        {"": {}},
        {"pool": {"a\nb": 1}},
    ],
)
def test_a_mapping_of_any_wrong_shape_is_an_invalid_config(data: dict[str, object]) -> None:
    assert all(re.match(r"config: .+: .+", line) for line in mistakes(data))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"missing\.toml: cannot be read: No such file or directory; write"):
        load_settings(tmp_path / "missing.toml")
    (tmp_path / "latin.toml").write_bytes(b'x = "\xe4"')
    with pytest.raises(InvalidConfig, match=r"latin\.toml: is not UTF-8 text \(at byte 5\)"):
        load_settings(tmp_path / "latin.toml")


def test_a_byte_order_mark_is_no_mistake_and_the_lines_count_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes("\ufeff[pool]\r\nlanes = 3\r\n".encode())
    assert load_settings(path).pool.lanes == 3
    (told,) = file_mistakes(tmp_path, "\ufeff[pool]\nlane = 3\n")
    assert told.startswith(":2: [pool] lane: unknown key"), told


# --- paths


def test_model_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    paths = ["models/a", "../b", "/c", "stub:echo"]
    file.write_text("".join(f'[[model]]\nname = "m{i}"\npath = "{path}"\n' for i, path in enumerate(paths)))
    assert [model.path for model in load_settings(file).model] == [
        str(tmp_path / "models/a"),
        str(tmp_path.parent / "b"),
        "/c",
        "stub:echo",
    ]


def test_the_state_folder_is_relative_to_the_file_too() -> None:
    def state(written: object) -> str | None:
        return parse_settings({"pool": {"state": written}}, "config", Path("/base")).pool.state

    assert [state(written) for written in ("auto", "kept", "/kept", Path("kept"))] == [
        None,
        "/base/kept",
        "/kept",
        "/base/kept",
    ]


def test_libraries_of_ops_are_relative_to_the_file_too() -> None:
    session = parse_settings({"tensorflow": {"op_libraries": ["ops.so", "/b.so"]}}, "config", Path("/base")).tensorflow
    assert session.op_libraries == ("/base/ops.so", "/b.so")
    (line,) = mistakes({"tensorflow": {"op_libraries": [""]}})
    assert line.startswith("config: [tensorflow] op_libraries")


def test_the_tensors_and_tags_of_a_model() -> None:
    keys = {"tags": ["serve", "gpu"], "inputs": ["x:0"], "outputs": ["y", "z:1"]}
    (model,) = parse_settings({"model": [{"name": "m", "path": "m.pb", **keys}]}, "config", Path("/base")).model
    assert {key: list(getattr(model, key)) for key in keys} == keys
    lines = mistakes({"model": [{"name": "m", "path": "m.pb", "tags": "serve", "outputs": [1]}]})
    assert [line.partition(": ")[2].split(":")[0] for line in lines] == ["model[0].tags", "model[0].outputs[0]"]


def test_a_mapping_takes_paths_and_tuples() -> None:
    data = {"model": ({"name": "m", "path": Path("models/m")},), "pool": {"devices": (0, (1, 2))}}
    settings = parse_settings(data, "config", Path("/base"))
    assert settings.model[0].path == "/base/models/m"
    assert settings.pool.devices == (0, (1, 2))


def test_without_a_model_the_demo_is_served_and_the_rest_is_as_it_was() -> None:
    mine = parse_settings({"pool": {"lanes": 3}}, "config", Path("/"))
    demo = ModelSection(name="digits", path="/demo")
    assert with_demo(mine, Path("/demo")) == Settings(pool=mine.pool, model=(demo,))
    one = parse_settings({"model": [{"name": "m", "path": "/m"}]}, "config", Path("/"))
    assert with_demo(one, Path("/demo")) == one


def test_pydantic_is_the_business_of_this_package_alone() -> None:
    code = "import pool.devices, pool.plan.placement, pool.processes.launch, sys; sys.exit('pydantic' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=EXAMPLE.parent, timeout=60)


def test_silence_is_longer_than_some_heartbeats() -> None:
    assert (
        parse_settings({"health": {"heartbeat": "2s", "silent_after": "6s"}}, "config", Path("/")).health.silent_after
        == 6
    )
    (line,) = mistakes({"health": {"heartbeat": "2s", "silent_after": "5s"}})
    assert line == "config: [health] silent_after: 5 s is less than three heartbeats of 2 s; write 6 s or more"


@pytest.mark.parametrize(
    ("section", "key", "former", "now"),
    [
        ("[pool]", "endpoint", '""', '"auto"'),
        ("[pool]", "state", '""', '"auto"'),
        ("[pool]", "cpu_affinity", "false", '"off"'),
        ("[pool]", "cpu_affinity", "true", '"auto"'),
        ("[pool]", "watch", '"never"', '"off"'),
        ("[pool]", "watch", "0", '"off"'),
        ("[tensorflow]", "per_process_gpu_memory_fraction", "0.0", '"unlimited"'),
        ("[tensorflow]", "intra_op_parallelism_threads", "0", '"auto"'),
        ("[tensorflow]", "inter_op_parallelism_threads", "0", '"auto"'),
        ("[queue]", "client_max_jobs", "0", '"auto"'),
        ("[restart]", "replacement", '"never"', "'off'"),
        ("[recycle]", "jobs", "0", '"off"'),
        ("[health]", "device_free_timeout", '"0s"', '"off"'),
        ("[quarantine]", "keep", "0", '"off"'),
        ("[crash_reports]", "keep", "0", '"off"'),
        ("[shared_memory]", "max_bytes", "0", '"off"'),
        ("[advanced]", "spin_us", "0", '"off"'),
        ("[[model]]", "tags", "[]", '"auto"'),
        ("[[model]]", "inputs", "[]", '"auto"'),
        ("[[model]]", "outputs", "[]", '"auto"'),
        ("[[model]]", "batching", "true", "'always'"),
        ("[[model]]", "batching", "false", "'off'"),
        ("[[model]]", "batch_wait", '"0ms"', '"off"'),
        ("[[model]]", "max_jobs", "0", '"unlimited"'),
        ("[[model]]", "stateful", '""', '"auto"'),
        ("[[model]]", "handler", '""', '"off"'),
        ("[[model]]", "handler_path", '""', '"auto"'),
        ("[[model]]", "advanced.clear_devices", "true", "'all'"),
        ("[[model]]", "advanced.clear_devices", "false", "'off'"),
        ("[[model]]", "advanced.grappler", "{ remapping = false }", '"off"'),
    ],
)
def test_another_spelling_of_off_unlimited_or_auto_is_told_the_only_one(
    tmp_path: Path, section: str, key: str, former: str, now: str
) -> None:
    required = 'name = "m"\npath = "stub:echo"\n' if section == "[[model]]" else ""
    text = f"{section}\n{required}{key} = "
    (told,) = file_mistakes(tmp_path, text + former)
    place = f"model[0].{key}" if required else f"{section} {key}"
    assert told.startswith(f":{text.count(chr(10)) + 1}: {place}: ")
    assert now in told.partition("; write ")[2]
    if not key.endswith("grappler"):
        (tmp_path / "right.toml").write_text(text + now)
        load_settings(tmp_path / "right.toml")


@pytest.mark.parametrize(("former", "now"), RENAMED.items())
def test_a_former_name_is_told_the_new_one(tmp_path: Path, former: str, now: str) -> None:
    section, _, key = former.partition(" ")
    required = {"[[device]]": "use = 0\n", "[[model]]": 'name = "m"\npath = "stub:echo"\n'}.get(section, "")
    text = f"{section}\n{required}{key or 'max_bytes'} = 1\n"
    (told,) = file_mistakes(tmp_path, text)
    place = f"{section.strip('[]')}[0].{key}" if required else former
    line = text.count("\n") if key else 1
    assert told == f":{line}: {place}: has a new name; write {now.removeprefix(section + ' ')}"
    section, _, key = now.partition(" ")
    tables: dict[str, Any] = {"[[model]]": ModelSection, "[[device]]": DeviceSection}
    table = tables.get(section, Settings)
    path = key if required else f"{section.strip('[]')}.{key}".strip(".")
    for part in path.split("."):
        table = table.model_fields[part].annotation  # KeyError: no key of today


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"address": "ray://a:1"}, "address: 'ray://a:1' is not an address of Ray; write"),
        ({"address": "local"}, "address: 'local' is not an address of Ray; write"),
        ({"nodes": 0}, 'nodes: 0 is not a number from 1; write one, or "all"'),
        ({"gpus": -1}, 'gpus: -1 is not a number from 0; write one, or "all"'),
        ({"gpus": 0.5}, 'gpus: 0.5 is not a number from 0; write one, or "all"'),
        ({"nodes": True}, 'nodes: True is not a number from 1; write one, or "all"'),
        ({"name": "a b"}, "name: 'a b' is not a name; write"),
        ({"name": "{nodes}"}, "name: '{nodes}' is not a name; write"),
        ({"labels": {"zone": 1}}, "labels: {'zone': 1} is not a table of texts; write one such as"),
    ],
)
def test_what_a_cluster_is_refused(keys: dict[str, object], told: str) -> None:
    (line,) = mistakes({"cluster": keys})
    assert line.startswith(f"config: [cluster] {told}")


def test_a_cluster() -> None:
    keys = {"address": "10.0.0.1:6379", "nodes": 2, "gpus": 0, "labels": {"zone": "a"}, "name": "p-{node}"}
    read = parse_settings({"cluster": keys}, "config", Path("/")).cluster
    assert (read.address, read.nodes, read.gpus, read.labels, read.name) == tuple(keys.values())
