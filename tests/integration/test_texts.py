"""Texts that are no UTF-8 come in as arguments, paths and error texts; no process ends by them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pool import Client, errors, start
from support.commands import run_command
from support.pool_process import PoolProcess, pool_process

ODD = "m\udcff"  # what Python makes of the bytes b"m\xff"
ALONE = "\ud800"  # of no bytes at all

HANDLER = r"""
class Mute(ValueError):
    def __str__(self):
        raise RuntimeError("no text")

class Odd:
    inputs = {"double": {"text": ("string", [None])}}

    def preprocess(self, inputs, signature):
        if signature != "double":
            return inputs
        text = inputs["text"].item(0)
        if text == b"odd":
            raise ValueError("m\udcff and \ud800")
        if text == b"mute":
            raise Mute
        if text == b"output":
            return {"z\udcff": [1.0]}
        return {"x": [1.0]}
"""

CONFIG = """
[pool]
endpoint = "@endpoint@"
devices = ["cpu"]

[[model]]
name = "odd"
path = "stub:rows"
handler = "odd:Odd"
handler_path = "FOLDER"
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolProcess]:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "odd.py").write_text(HANDLER)
    with pool_process(CONFIG.replace("FOLDER", str(folder))) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


@pytest.mark.parametrize("path", [f"./{ODD}", f"/{ALONE}", f"stub:{ODD}", "/with\0nul"])
def test_a_path_that_cannot_travel_is_refused(pool: PoolProcess, client: Client, path: str) -> None:
    with pytest.raises(errors.InvalidConfig, match=r"model\[0\]\.path: .* is not UTF-8 text without NULs; rename"):
        client.load("m", path)
    assert client.status().pid == pool.pid


def test_from_a_shell(pool: PoolProcess, client: Client) -> None:
    done = run_command(pool, "load", "m", f"./{ODD}")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert r"m\udcff' is not UTF-8 text" in done.stderr
    assert client.status().pid == pool.pid
    pool.await_log(r"m\udcff' is not UTF-8 text")


@pytest.mark.parametrize("name", [ODD, ALONE])
def test_names_are_refused(pool: PoolProcess, client: Client, name: str) -> None:
    with pytest.raises(errors.InvalidConfig, match=r"model\[0\]\.name: .* is not a name"):
        client.load(name, "stub:echo")
    with pytest.raises(errors.InvalidConfig, match=r"no model .* is served"):
        client.unload(name)
    with pytest.raises(errors.InvalidInput, match="is not valid unicode"):
        client.run(name, {"x": [1.0]})
    assert client.status().pid == pool.pid


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("odd", r"preprocess: ValueError: m\\udcff and \\ud800 \(odd.py, line 1\d\)"),
        ("mute", r"preprocess: Mute: <a Mute without a readable text>"),
        ("output", r"it gave 'z\\udcff'; expected are 'x'"),
    ],
)
def test_an_error_is_told_whatever_its_text(client: Client, text: str, said: str) -> None:
    (before,) = client.status().slots
    with pytest.raises(errors.PoolError, match=said):
        client.run("odd", {"text": [text]}, signature="double")
    assert client.run("odd", {"text": ["good"]}, signature="double")["y"].tolist() == [2.0]
    (after,) = client.status().slots
    assert (after.pid, after.incarnation) == (before.pid, before.incarnation)


def test_a_folder_with_an_odd_name(tmp_path: Path) -> None:
    """Absolute paths, and none, do not touch it."""
    folder = tmp_path / ODD
    folder.mkdir()
    stub, relative = folder / "stub.toml", folder / "relative.toml"
    stub.write_text('[pool]\ndevices = ["cpu"]\n[[model]]\nname = "m"\npath = "stub:echo"\n')
    relative.write_text('[pool]\ndevices = ["cpu"]\n[[model]]\nname = "m"\npath = "m"\n')
    environ = {"XDG_RUNTIME_DIR": str(tmp_path), "PYTHONIOENCODING": "utf-8:strict"}
    done = run_command(None, "check", "--config", str(stub), environ=environ)
    assert done.returncode == 0, done
    assert rf"{tmp_path}/m\udcff/stub.toml" in done.stdout
    done = run_command(None, "check", "--config", str(relative), environ=environ)
    assert done.returncode == 2
    assert r"m\udcff/m' is not UTF-8 text; rename the folder" in done.stderr
    with start(stub) as embedded:
        assert embedded.models()[0].name == "m"
    with pytest.raises(errors.InvalidConfig, match="is not UTF-8 text without NULs"):
        start({"pool": {"devices": ["cpu"]}, "model": [{"name": "m", "path": f"./{ODD}"}]})


@pytest.mark.parametrize("variable", ["XDG_RUNTIME_DIR", "XDG_STATE_HOME"])
def test_folders_of_the_environment(tmp_path: Path, variable: str) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[pool]\ndevices = ["cpu"]\n[[model]]\nname = "m"\npath = "stub:echo"\n')
    environ = {"XDG_RUNTIME_DIR": str(tmp_path), variable: str(tmp_path / ODD)}
    done = run_command(None, "start", "--config", str(config), environ=environ)
    lines = 1 if variable == "XDG_RUNTIME_DIR" else 2  # a wrong endpoint is told before the configuration
    assert (done.returncode, done.stderr.count("\n")) == (2, lines), "which configuration, and what is wrong"
    assert r"m\udcff/pool" in done.stderr
    assert "UTF-8" in done.stderr
    assert not (tmp_path / "pool").exists()


def test_an_endpoint_that_is_no_utf8() -> None:
    told = pytest.raises(errors.PoolUnreachable, match=r"cannot connect to .*: it is not UTF-8")
    with Client(f"ipc:///tmp/{ODD}.sock", connect_timeout=5.0) as client, told:
        client.status()
