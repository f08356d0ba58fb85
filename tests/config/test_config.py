import json
import os
import re
from pathlib import Path

import pytest

from pool.config import Config, explain, load
from pool.config.sections import SECTIONS
from pool.errors import InvalidConfig

ROOT = Path(__file__).parents[2]
MISTAKES = """\
[pool]
lanes = 17
dvices = [0]
devices = [0, -1]
visible_device_list = "0"
endpoint = "tcp://*:5555"

[[model]]
name = "a"
path = "model"
allowed_batch_sizes = [
    1,
    8,
]
weight = true

[[model]]
"name" = "a"
path = "away\\u001b[31m"
stateful = "true"
max_jobs = 3

[[model]]
name = "tab\\t"
labels.3 = 1
[queu]
max_bytes = 1

[queue]
max_bytes = "6 Gb"
default_timeout = 60
max_attempts = 1.0

[[restart]]
intensity = 5
"""
FOUND = """\
:2: pool.lanes: 17 does not fit: Input should be less than or equal to 16
:3: pool.dvices: is unknown; did you mean 'devices'?
:4: pool.devices: [0, -1] does not fit; write a list of devices: [0, 1]
:5: pool.visible_device_list: is unknown; a worker sees only its own GPUs: set pool.devices
:6: pool.endpoint: 'tcp://*:5555' is not an endpoint; write ipc://
:11: model[0].allowed_batch_sizes: [1, 8] does not rise to max_batch, which is 32
:15: model[0].weight: True does not fit: Input should be a valid number
:17: model[1].name: 'a' is the name of a model above, too
:19: model[1].path: '{folder}/away\\x1b[31m' is not there
:20: model[1].stateful: 'true' does not fit: Input should be a valid boolean
:21: model[1].max_jobs: is unknown; did you mean 'queue.max_jobs'?
:23: model[2].path: is missing: A SavedModel
:24: model[2].name: 'tab\\t' does not fit; write a text of 1 to 255 bytes without control
:25: model[2].labels.3.[key]: '3' does not fit; write a text that is no number
:26: queu: is unknown; did you mean 'queue'?
:30: queue.max_bytes: '6 Gb' does not fit; write a whole number with its unit, such as "512MiB"
:31: queue.default_timeout: 60 does not fit; write a whole number with its unit, such as "250ms"
:32: queue.max_attempts: 1.0 does not fit: Input should be a valid integer
:34: restart: is no section; write [restart] above its keys
"""


def of(text: str, folder: Path) -> Config:
    (folder / "some.toml").write_text(text, "utf-8-sig")
    return load(folder / "some.toml")


def refused(text: str, folder: Path) -> str:
    with pytest.raises(InvalidConfig) as refusal:
        of(text, folder)
    return str(refusal.value)


def test_all_mistakes_are_told_at_once_each_with_its_line_and_what_would_be_right(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    told = refused(MISTAKES, tmp_path).splitlines()
    expected = FOUND.replace("{folder}", str(tmp_path)).splitlines()
    assert len(told) == len(expected)
    for line, start in zip(told, expected, strict=True):
        assert line.startswith(f"{tmp_path}/some.toml{start}")
    assert all(line.isprintable() for line in told)


def test_the_example_names_every_key_at_its_default(tmp_path: Path) -> None:
    text = (ROOT / "config.toml").read_text()
    uncommented = re.sub(r"(?m)^# (?=\[\[|\w+ = )", "", text)
    written = {match[1] for match in re.finditer(r"(?m)^(\w+) = ", uncommented)}
    assert written == {name for section in SECTIONS.values() for name in section.model_fields}
    (tmp_path / "workers").symlink_to(ROOT / "workers")
    example = of(uncommented, tmp_path).model_dump()
    demo = load(ROOT / "config.toml").model_dump()
    assert demo == load(None).model_dump()
    assert Path(example["model"][0].pop("path")).samefile(ROOT / "workers" / "demo" / "digits")
    del demo["model"][0]["path"]  # of the installed package
    assert (example.pop("device"), demo.pop("device")) == ([{"device": 0, "memory": None, "tensorflow": {}}], [])
    assert example == demo
    assert Path(load(None).model[0].path, "saved_model.pb").is_file()  # the demo, which is served without a model


def test_values_are_plain_and_words_are_none(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "current").symlink_to("real")
    text = """
    model = [{name = "m", path = "current", devices = "cpu", batch_wait = "250ms", tensorflow.allow_growth = true}]
    pool = {state = "state", devices = "auto"}
    queue = {max_bytes = "1GB", default_timeout = "2m"}
    """
    dump = of(text, tmp_path).model_dump()
    assert json.loads(json.dumps(dump)) == dump
    model = {
        "path": f"{tmp_path}/current",
        "devices": ["cpu"],
        "batch_wait": 0.25,
        "tensorflow": {"allow_growth": True},
    }
    assert dump["model"][0] | model == dump["model"][0]
    assert dump["pool"] | {"state": f"{tmp_path}/state", "devices": None, "group": None} == dump["pool"]
    assert dump["queue"] | {"max_bytes": 10**9, "default_timeout": 120.0} == dump["queue"]


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ('pool.devices = ["GPU-1,GPU-2"]', "a list of devices"),
        ('pool.drain_timeout = "0s"', "such as"),
        ('pool.state = "a\\u0000"', "should match pattern"),
        ('model = [{name = "a", path = "/", weight = nan}]', "a finite number"),
        ('model = [{name = "a", path = "/", replicas = 0}]', '"auto", "all" or a number from 1 to 1024'),
        ('model = [{name = "a@2", path = "/"}]', "some.toml:1: model[0].name: 'a@2' has an @"),
        ("model = []", "[[model]]"),
        ('model = [{name = "a", path = "/", handler = "module.Class"}]', "should match pattern"),
        ('model = [{name = "a", path = "/", layer_devices = {"b/*" = "gpu:1"}}]', '"encoder/*" = "/gpu:1"'),
        ('tensorflow.op_libraries = ["no.so"]', "is not there"),
        ("device = [{device = [-1]}]", "a group such as [0, 1]"),
        (
            'model = [{name = "a", path = "/", tensorflow = {allow_growt = true}}]',
            "tensorflow.allow_growt: is unknown; did",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_refused(tmp_path: Path, line: str, right: str) -> None:
    assert re.fullmatch(f".*{re.escape(right)}.*", refused(line, tmp_path))


@pytest.mark.parametrize("text", ["[pool", "pool = 1\npool = 2", "a = " + "[" * 5000, "a = '\udcff'"])
def test_what_is_not_toml_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "some.toml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InvalidConfig, match=r"some\.toml: cannot be read as TOML: .+"):
        load(tmp_path / "some.toml")


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "away"):
        with pytest.raises(InvalidConfig, match="is not a file"):
            load(path)


def test_each_key_is_explained() -> None:
    assert explain("model.max_batch") == "model.max_batch = 32\nThe most rows that run as one batch."
    for section, kind in SECTIONS.items():
        for name in kind.model_fields:
            assert re.fullmatch(r"\S+ (= .+|is required)\n\S.+\.", explain(f"{section}.{name}"))
    with pytest.raises(InvalidConfig, match=r"did you mean 'model\.max_batch'\?"):
        explain("model.max_bach")
