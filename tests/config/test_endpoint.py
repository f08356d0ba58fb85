import grp
import os
from pathlib import Path

import pytest

from pool.endpoint import admit, hold, ipc_path, own, prepare_folder, sought
from pool.errors import InvalidConfig, PoolUnreachable

SERVICE = "ipc:///run/pool/pool.sock"


def test_a_client_looks_where_a_pool_listens(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert sought(environ, 7) == [own(environ, 7), SERVICE] == [f"ipc://{tmp_path}/pool/pool.sock", SERVICE]
    assert sought(environ | {"POOL_ENDPOINT": "ipc:///a"}, 7) == [own(environ | {"POOL_ENDPOINT": "ipc:///a"}, 7)]
    assert own({"RUNTIME_DIRECTORY": "/run/pool:/run/more"}, 7) == SERVICE
    assert own({}, 4_000_000) == "ipc:///tmp/pool-4000000/pool.sock"


@pytest.mark.parametrize("endpoint", ["", "pool", "tcp://a:1", "ipc://a", "ipc:///a/", "ipc:///a\n", "ipc:///a\0b"])
def test_what_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidConfig, match="write ipc:// and the absolute path"):
        ipc_path(endpoint)


def test_a_path_must_fit_with_the_links_suffix() -> None:
    fits = "ipc:///" + "é" * 50 + "a"
    assert str(ipc_path(fits)) == fits.removeprefix("ipc://")
    with pytest.raises(InvalidConfig, match="is 1 bytes too long"):
        ipc_path(fits + "a")


@pytest.mark.parametrize("kind", ["link", "writable"])
def test_a_folder_that_others_could_have_made_is_refused_on_both_sides(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "pool"
    (tmp_path / "theirs").mkdir(0o700)
    if kind == "link":
        folder.symlink_to("theirs")
    else:
        folder.mkdir()
        folder.chmod(0o770)
    reason = "is not a folder of your own into which nobody else can write, or is a link"
    with pytest.raises(InvalidConfig, match=reason):
        prepare_folder(folder / "pool.sock", None)
    with pytest.raises(PoolUnreachable, match=f"{reason}; to use it all the same, set POOL_ENDPOINT=ipc://"):
        sought({"XDG_RUNTIME_DIR": str(tmp_path)}, os.getuid())


def test_the_folder_is_its_owners_alone_and_a_group_must_be_able_to_pass(tmp_path: Path) -> None:
    socket = tmp_path / "a" / "pool" / "pool.sock"
    prepare_folder(socket, None)
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(InvalidConfig, match="cannot be passed by members of some"):
        prepare_folder(socket, "some")


def test_a_socket_is_opened_to_a_group(tmp_path: Path) -> None:
    socket = tmp_path / "pool.sock"
    socket.touch(0o600)
    admit(grp.getgrgid(os.getgid()).gr_name, socket)
    assert socket.stat().st_mode & 0o777 == 0o660
    with pytest.raises(InvalidConfig, match="write one that `id` shows"):
        admit("no such group", socket)


def test_a_link_in_the_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pool.sock.lock").symlink_to("elsewhere")
    with pytest.raises(InvalidConfig, match="remove it"):
        hold(tmp_path / "pool.sock")
    assert not (tmp_path / "elsewhere").exists()
