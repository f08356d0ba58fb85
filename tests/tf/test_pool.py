"""The whole path with TensorFlow: client, pool, workers, Session, and back."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from support.commands import run_command
from support.fake_nvml import CARD, GIB, FakeNvml, orphan
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import alive, eventually
from workers.tf.library import SavedModelLoader

pytestmark = pytest.mark.tensorflow

InProcess = Callable[[Path, str, Mapping[str, Any]], dict[str, Any]]


def model(name: str, path: Path, devices: str = '"all"') -> str:
    return f'[[model]]\nname = "{name}"\npath = "{path}"\ndevices = {devices}\n'


@pytest.fixture(scope="module")
def pool(
    two_signatures: Path, keras_export: Path, tf1_table: Path, counter: Path, failing: Path
) -> Iterator[PoolProcess]:
    models = [
        model("two", two_signatures),
        model("keras", keras_export),
        model("table", tf1_table),
        model("counter", counter),
        model("failing", failing),
    ]
    with pool_process(stub_config(models="".join(models))) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


def assert_same(got: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        value = np.asarray(value, object if isinstance(value, bytes) else None)
        assert got[name].dtype == value.dtype
        np.testing.assert_array_equal(got[name], value)


def test_two_signatures_with_several_inputs_and_outputs(
    client: Client, two_signatures: Path, in_process: InProcess
) -> None:
    rng = np.random.default_rng(1)
    numbers = {"a": rng.random((5, 3), np.float32), "b": rng.random((5, 3), np.float32)}
    assert_same(client.run("two", numbers), in_process(two_signatures, "serving_default", numbers))
    strings = {"text": np.array([b"a", b"", b"\xff\0"], object)}
    expected = in_process(two_signatures, "strings", strings)
    assert_same(client.run("two", strings, signature="strings"), expected)
    assert client.run("two", numbers, outputs=["sum"]).keys() == {"sum"}


def test_keras(client: Client, keras_export: Path, in_process: InProcess) -> None:
    features = {"features": np.random.default_rng(2).random((7, 4), np.float32)}
    assert_same(client.run("keras", features), in_process(keras_export, "serving_default", features))


def test_a_table_of_tensorflow_1_is_filled(client: Client) -> None:
    answer = client.run("table", ["dog", "cat", "cow"], outputs=["number"])
    assert answer["number"].tolist() == [12, 11, 9]


def test_init_ops_are_not_offered(client: Client) -> None:
    for served in client.models():
        assert not [name for name in served.signatures if name.startswith("__")]


def test_shapes_are_checked_before_tensorflow_sees_them(client: Client) -> None:
    expected = r"input 'features': expected float32 \[\?, 4\], got float32 \[2, 3, 4\]"
    with pytest.raises(errors.InvalidInput, match=expected):
        client.run("keras", np.zeros((2, 3, 4), np.float32))
    with pytest.raises(errors.InvalidInput, match=r"got int32 \[1, 4\], which cannot be cast without loss"):
        client.run("keras", np.zeros((1, 4), np.int32))
    assert client.run("keras", np.zeros((1, 4)))["output_0"].shape == (1, 3)
    assert client.run("keras", np.zeros((1, 4), ">f4"))["output_0"].shape == (1, 3)
    assert client.run("keras", [[1, 2, 3, 4]])["output_0"].shape == (1, 3)


def test_an_error_of_the_model_is_tensorflows_and_harms_nobody(client: Client, pool: PoolProcess) -> None:
    workers = pool.workers()
    with pytest.raises(errors.ModelFailed, match=r"indices\[0\] = 7 is not in \[0, 2\)"):
        client.run("failing", [7])
    assert client.run("failing", [1])["picked"].tolist() == [2.0]
    assert pool.workers() == workers


def test_a_session_runs_the_graph_by_name(client: Client) -> None:
    with client.session("failing") as session:
        assert session.run("picky:0", {"index:0": [1, 0]}).tolist() == [2.0, 1.0]
        assert session.run({"twice": ["picky:0"]}, {"picky:0": [5]}) == {"twice": [[5.0]]}
        with pytest.raises(ValueError, match=r"Argument `fetch` = nope:0 cannot be interpreted as a Tensor\."):
            session.run("nope:0")
        with pytest.raises(errors.InvalidInput, match="You must feed a value for placeholder tensor 'index'"):
            session.run("picky:0")
        with pytest.raises(errors.ModelFailed, match=r"indices\[0\] = 7 is not in \[0, 2\)"):
            session.run("picky:0", {"index:0": [7]})


def test_a_private_session_counts_for_itself(client: Client, counter: Path) -> None:
    meta_graph = SavedModelLoader(str(counter)).get_meta_graph_def_from_tags(["serve"])
    signature = meta_graph.signature_def["serving_default"]
    step, count = signature.inputs["step"].name, signature.outputs["count"].name
    before = client.run("counter", 0, signature="peek")["count"]
    with client.session("counter", private=True) as one, client.session("counter", private=True) as other:
        assert [one.run(count, {step: 2}) for _ in range(3)] == [2, 4, 6]
        assert other.run(count, {step: 1}) == 1
    assert client.run("counter", 0, signature="peek")["count"] == before
    assert client.session("counter").run(count, {step: 0}) == before


def test_a_private_session_ends_when_its_client_is_killed(pool: PoolProcess) -> None:
    script = f"""
import sys, pool
session = pool.Client({pool.endpoint!r}).session("failing", private=True)
print(session.run("picky:0", {{"index:0": [1]}}), flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-P", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"[2.]\n"
        client.kill()
    pool.await_log("closed a private session of model failing: its client is gone")


def test_a_stateful_model_is_known_and_counts_once(client: Client) -> None:
    assert {served.name: served.stateful for served in client.models()}["counter"] is True
    before = int(client.run("counter", 0, signature="peek")["count"])
    counts = [int(client.run("counter", 1)["count"]) for _ in range(5)]
    assert counts == [before + each for each in (1, 2, 3, 4, 5)]


def test_two_workers_with_two_lanes_count_as_one(client: Client, pool: PoolProcess) -> None:
    before = int(client.run("counter", 0, signature="peek")["count"])
    answers = counted(client)
    assert client.run("counter", 0, signature="peek")["count"] == before + 200
    assert all(before < answer <= before + 200 for answer in answers)
    pool.await_log("model counter writes state, so its jobs run only in slot")


@pytest.mark.models
def test_with_one_lane_each_job_sees_what_all_before_it_wrote(counter: Path) -> None:
    with pool_process(stub_config("lanes = 1", models=model("counter", counter))) as pool, pool.client() as client:
        assert counted(client) == list(range(1, 201))
        slot = client.models()[0].scheduling.affinity
        subprocess.run(["kill", f"-{signal.SIGKILL.value}", str(client.status().slots[slot].pid)], check=True)
        eventually(lambda: client.models()[0].scheduling.affinity != slot)
        assert counted(client) == list(range(1, 201)), "the other one begins with the variables as they were loaded"
        pool.await_log(f"writes state, which was lost with slot {slot} incarnation 1")


def counted(client: Client) -> list[int]:
    """The answers to 200 jobs of four threads."""
    with ThreadPoolExecutor(4) as threads:
        return sorted(threads.map(lambda _: int(client.run("counter", 1)["count"]), range(200)))


def test_outputs_that_alias_what_was_fed_stay_apart(client: Client) -> None:
    """`same` and `product` of many jobs at once, over both lanes of both workers."""
    futures = []
    for number in range(200):
        array = np.full((4, 3), number, np.float32)
        futures.append(client.submit("two", {"a": array, "b": np.ones((4, 3), np.float32)}))
        array[:] = -1
    for number, future in enumerate(futures):
        assert (future.result(30)["product"] == number).all()


def test_the_start_is_quiet(pool: PoolProcess) -> None:
    told = ("picky", "closed a private session")
    noise = [line for line in pool.text().splitlines() if " | " in line and not any(text in line for text in told)]
    assert not noise


@pytest.mark.models
def test_guesslang_gives_what_tensorflow_gives(guesslang: Path, in_process: InProcess) -> None:
    source = Path(subprocess.__file__)
    text = {"content": np.array([source.read_bytes()[:20_000], b"int main(void) { return 0; }", b""], object)}
    with pool_process(stub_config(models=model("guesslang", guesslang))) as pool, pool.client() as client:
        signatures = client.models()[0].signatures
        assert set(signatures) == {"classification", "predict", "serving_default"}
        for signature, description in signatures.items():
            (name,) = description.inputs
            inputs = {name: text["content"]}
            expected = in_process(guesslang, signature, inputs)
            assert_same(client.run("guesslang", inputs, signature=signature), expected)
        command = ["submit", "guesslang", "--signature", "predict", "--input", f"content=@{source}"]
        done = run_command(pool, *command)
        assert done.returncode == 0, done.stderr
        assert "py" in done.stdout


@pytest.mark.faults
def test_sigkill_while_tensorflow_runs(two_signatures: Path) -> None:
    """Jobs under way on the killed worker are answered by the other one."""
    with pool_process(stub_config(models=model("two", two_signatures))) as pool, pool.client() as client:
        ones = {"a": np.ones((200_000, 3), np.float32), "b": np.ones((200_000, 3), np.float32)}
        futures = [client.submit("two", ones) for _ in range(40)]
        victim = client.status().slots[0].pid
        subprocess.run(["kill", f"-{signal.SIGKILL.value}", str(victim)], check=True)
        for future in futures:
            assert future.result(60)["total"].shape == (200_000, 3)
        eventually(lambda: client.status().slots[0].state == "READY", 60)
        workers = pool.workers()
        pool.running.kill()
        eventually(lambda: not any(alive(worker) for worker in workers))
        pool.running.wait(10)
        for file in pool.folder.glob("p.sock*"):
            file.unlink()


@pytest.mark.models
def test_a_gpu_worker_that_sees_no_gpu_refuses_and_says_what_to_install(keras_export: Path, nvml: FakeNvml) -> None:
    config = stub_config(devices="[0]", models=model("keras", keras_export))
    failed = PoolProcess(config, nvml.environ).start()
    try:
        assert failed.wait(90) == 3, failed.text()
        text = failed.text()
        assert text.count("STARTING") == 1, "it is not tried again"
        assert "WRONG_DEVICES" in text
        assert "sees 0 GPUs, but this worker should have 1" in text
        assert "pip install 'tf-worker-pool[gpu]'" in text
    finally:
        failed.kill()


@pytest.mark.replacement
def test_a_gpu_worker_imports_tensorflow_when_its_memory_is_free_and_not_before(
    keras_export: Path, nvml: FakeNvml
) -> None:
    with orphan() as pid:
        nvml.say(CARD, used=9 * GIB, processes=[[pid, 5 * GIB]])
        pool = PoolProcess(stub_config(devices="[0]", models=model("keras", keras_export)), nvml.environ).start()
        try:
            pool.await_log(f"slot 0 | waiting for gpu:0: 5.0 GiB of a former pool's worker (pid {pid}, state S)")
            with pool.client() as client:
                said = "waiting for gpu:0: 5.0 GiB of a former pool's worker"
                # The line comes by a pipe, what it does by a beat.
                eventually(lambda: client.status().slots[0].doing.startswith(said))
                slot = client.status().slots[0]
                maps = Path(f"/proc/{slot.pid}/maps").read_text()
            assert "/site-packages/zmq/" in maps, "what is imported can be seen there"
            assert "/tensorflow/" not in maps
            nvml.say(CARD)
            # On this machine TensorFlow then sees that there is no such device.
            assert pool.wait(90) == 3, pool.text()
            assert "sees 0 GPUs, but this worker should have 1" in pool.text()
        finally:
            pool.kill()


@pytest.mark.models
def test_a_folder_that_is_no_model_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"not a protobuf at all")
    failed = PoolProcess(stub_config(devices='["cpu"]', models=model("broken", tmp_path))).start()
    try:
        assert failed.wait(90) == 3, failed.text()
        assert f"model broken: {tmp_path}" in failed.text()
        assert "MODEL_CANNOT_LOAD" in failed.text()
        assert failed.text().count("STARTING") == 1, "it is not tried again"
    finally:
        failed.kill()


def test_a_corrupt_model_keeps_its_slot_from_serving_it_and_from_nothing_else(
    two_signatures: Path, tmp_path: Path
) -> None:
    for name in ("cut", "no-variables"):
        shutil.copytree(two_signatures, tmp_path / name)
    graph = tmp_path / "cut" / "saved_model.pb"
    graph.write_bytes(graph.read_bytes()[:-100])
    shutil.rmtree(tmp_path / "no-variables" / "variables")
    models = [model(name, tmp_path / name) for name in ("cut", "no-variables")] + [model("two", two_signatures)]
    feeds = {"a": np.ones((2, 3), np.float32), "b": np.ones((2, 3), np.float32)}
    with pool_process(stub_config(devices='["cpu"]', models="".join(models))) as pool, pool.client() as client:
        expected = client.run("two", feeds)
        why = {each.model: each.why for each in client.status().unloadable}
        assert why.keys() == {"cut", "no-variables"}
        assert "its protobuf is corrupt or cut short" in why["cut"]
        with pytest.raises(errors.ModelNotFound, match=r"'cut' could not be loaded.*its protobuf is corrupt"):
            client.run("cut", feeds)
        shutil.copy(two_signatures / "saved_model.pb", graph)
        assert run_command(pool, "reload", "--wait").returncode == 0
        assert_same(client.run("cut", feeds), expected)
        assert [each.model for each in client.status().unloadable] == ["no-variables"]
