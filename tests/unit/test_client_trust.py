"""The default endpoint is used only where no other user could have put a socket."""

import os
import re
import tempfile
from pathlib import Path

import pytest

from pool import Client, errors
from pool.client.peer import check_folder
from pool.endpoint import default_endpoint
from support.asked import Asked
from support.fake_pool import FakePool


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "pool"


def test_a_missing_folder_and_an_own_one_are_fine(tmp_path: Path) -> None:
    check_folder(tmp_path / "none", "ipc:///none/pool.sock")
    assert not (tmp_path / "none").exists()
    tmp_path.chmod(0o700)
    check_folder(tmp_path, "ipc:///pool.sock")


def test_another_users_folder_is_refused(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.mkdir(0o700)
    mine = os.getuid()
    if mine == 0:
        os.chown(runtime, 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    with Client() as client:
        future = client.submit("echo", 1.0)
        with pytest.raises(errors.PoolUnreachable, match="belongs to uid") as caught:
            future.result(0)
        assert repr(client.endpoint) in str(caught.value)
        with pytest.raises(errors.PoolUnreachable, match="belongs to uid"):
            client.status()


def test_a_link_and_a_folder_open_to_others_are_refused(runtime: Path) -> None:
    runtime.symlink_to(tempfile.gettempdir())
    with Client() as client, pytest.raises(errors.PoolUnreachable, match="not a folder"):
        client.run("echo", 1.0)
    runtime.unlink()
    runtime.mkdir()
    runtime.chmod(0o777)
    with Client() as client, pytest.raises(errors.PoolUnreachable, match="written to by other users"):
        client.run("echo", 1.0)


def test_a_named_endpoint_is_the_callers_choice(runtime: Path) -> None:
    runtime.mkdir()
    runtime.chmod(0o777)
    endpoint = f"ipc://{runtime}/pool.sock"
    with (
        Client(endpoint, connect_timeout=0.05) as client,
        pytest.raises(errors.PoolUnreachable, match="no pool answers"),
    ):
        client.run("echo", 1.0)


def test_a_folder_that_was_opened_to_others_while_the_pool_was_away_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent again to whoever listens there by then."""
    places = f"ipc://{tmp_path}/p.sock", f"ipc://{tmp_path}/none/p.sock"
    monkeypatch.setattr("pool.client.peer.endpoints", lambda *_: places)
    tmp_path.chmod(0o700)
    first = FakePool(tmp_path, b"1" * 8)
    with Client() as client:
        future = client.submit("m", 1.0)
        first.open()
        first.expect(Asked)
        tmp_path.chmod(0o777)
        first.close()
        other = FakePool(tmp_path, b"2" * 8)
        with pytest.raises(errors.PoolUnreachable, match="written to by other users"):
            future.result(5)
        assert other.next(0.1) is None
        other.close()


def test_the_environment_may_name_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = f"ipc://{tmp_path}/pool.sock"
    monkeypatch.setenv("POOL_ENDPOINT", endpoint)
    with Client(connect_timeout=0.05) as client, Client("ipc:///elsewhere") as other:
        assert (client.endpoint, other.endpoint) == (endpoint, "ipc:///elsewhere")
        with pytest.raises(errors.PoolUnreachable, match=re.escape(endpoint)):
            client.run("echo", 1.0)
    monkeypatch.setenv("POOL_ENDPOINT", "")
    with Client() as client:
        assert client.endpoint == default_endpoint(os.environ, os.getuid())
