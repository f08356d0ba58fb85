"""A client that was given no address: where it looks for its pool, and what it tells of where it looked."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pool import Client, errors
from pool.endpoint import EndpointLock, endpoints
from support.asked import Asked
from support.fake_pool import FakePool
from support.processes import eventually

Start = Callable[..., FakePool]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The user's own pool, and the machine's service."""
    for name in ("own", "service"):
        (tmp_path / name).mkdir(0o700)
    own, service = (f"ipc://{tmp_path}/{name}/p.sock" for name in ("own", "service"))
    monkeypatch.setattr("pool.client.peer.endpoints", lambda *_: (own, service))
    return own, service


@pytest.fixture
def start(tmp_path: Path, places: tuple[str, str]) -> Iterator[Start]:
    assert places
    started: list[FakePool] = []

    def start(name: str, instance: bytes = b"1" * 8) -> FakePool:
        started.append(FakePool(tmp_path / name, instance))
        return started[-1]

    yield start
    for pool in started:
        pool.close()


def test_the_own_pool_comes_first_then_the_service(start: Start, places: tuple[str, str]) -> None:
    service = start("service")
    with Client() as client:
        client.submit("m", 1.0)
        service.open()
        service.expect(Asked)
        assert client.endpoint == places[1]
    start("own").nothing_of(Asked)
    with Client() as client:
        client.submit("m", 1.0)
        eventually(lambda: client.endpoint == places[0])


def test_a_pool_that_comes_late_is_found_wherever_it_comes(start: Start) -> None:
    with Client(connect_timeout=20) as client:
        future = client.submit("m", 1.0)
        with pytest.raises(TimeoutError):
            future.result(0.15)
        service = start("service")
        service.open()
        assert service.expect(Asked).model == "m"


def test_what_a_dead_pool_has_left_behind_is_passed_over(start: Start, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "own" / "p.sock"))
    service = start("service")
    with Client() as client:
        client.submit("m", 1.0)
        service.open()
        service.expect(Asked)


def test_jobs_of_a_pool_that_is_lost_wait_for_it_and_go_to_no_other(start: Start) -> None:
    own = start("own")
    with Client(reconnect_timeout=20) as client:
        future = client.submit("m", 1.0)
        own.open()
        own.expect(Asked)
        service = start("service", b"2" * 8)
        own.close()
        service.nothing_of(Asked, 0.5)
        assert not future.done()
        again = start("own", b"3" * 8)
        again.open()
        again.expect(Asked)


def test_the_error_tells_each_place_and_what_was_there(places: tuple[str, str], tmp_path: Path) -> None:
    own, service = places
    (tmp_path / "service").rmdir()
    (tmp_path / "service").touch()
    with Client(connect_timeout=0.25) as client, pytest.raises(errors.PoolUnreachable) as caught:
        client.run("m", 1.0)
    told = f"no pool answers at {own} (No such file or directory) or {service} (Not a directory) (waited 0.25 s)"
    assert str(caught.value).startswith(told)


@pytest.mark.usefixtures("start")
def test_one_that_listens_and_does_not_answer_is_told_from_none(places: tuple[str, str], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "own" / "p.sock"))
        silent.listen(1)
        with Client(connect_timeout=0.25) as client, pytest.raises(errors.PoolUnreachable) as caught:
            client.run("m", 1.0)
    assert f"no pool answers at {places[0]} (no answer) (waited" in str(caught.value)


@pytest.mark.usefixtures("start")
def test_a_pool_that_lives_and_does_not_answer_is_told_from_none(places: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "own" / "p.sock"
    lock = EndpointLock(path)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen(1)
        with Client(connect_timeout=0.25) as client, pytest.raises(errors.PoolUnreachable) as caught:
            client.run("m", 1.0)
    lock.release()
    told = f"the pool at {places[0]} does not answer (waited 0.25 s): its process (pid {os.getpid()}) lives"
    assert str(caught.value).startswith(told)


def test_a_name_stands_for_both_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    own, service = f"ipc://{tmp_path}/pool/gpu.sock", "ipc:///run/pool-gpu/gpu.sock"
    assert (
        endpoints("gpu", os.environ, 7) == endpoints(None, {**os.environ, "POOL_ENDPOINT": "gpu"}, 7) == (own, service)
    )
    assert endpoints(None, os.environ, 7) == endpoints("pool", os.environ, 7)
    assert endpoints(None, os.environ, 7) == (f"ipc://{tmp_path}/pool/pool.sock", "ipc:///run/pool/pool.sock")
    for address in ("ipc:///x", "tcp://127.0.0.1:1", "a b", "", "a/b"):
        assert endpoints(address, os.environ, 7) == (address,)
    with Client("gpu", connect_timeout=0.05) as client, pytest.raises(errors.PoolUnreachable) as caught:
        client.run("m", 1.0)
    assert own in str(caught.value)
    assert service in str(caught.value)


def test_the_service_itself_has_one_place() -> None:
    """As `pool reload` in its unit does."""
    assert endpoints("gpu", {"RUNTIME_DIRECTORY": "/run/pool-gpu"}, 7) == ("ipc:///run/pool-gpu/gpu.sock",)
    assert endpoints(None, {"RUNTIME_DIRECTORY": "/run/pool"}, 7) == ("ipc:///run/pool/pool.sock",)


def test_a_service_is_not_trusted_where_anybody_could_have_made_its_folder(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start("service")
    tmp_path.chmod(0o777)
    monkeypatch.setattr("pool.client.peer.SERVICES", tmp_path)
    with Client() as client, pytest.raises(errors.PoolUnreachable, match="can be written to by other users"):
        client.run("m", 1.0)
    service.nothing_of(Asked)
