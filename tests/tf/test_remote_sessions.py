"""A session over TCP reads variables: it opens no file, whatever the graph could be made to open."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pool import Client, errors
from support.pool_process import PoolProcess, pool_process, stub_config
from workers.tf.library import tf

pytestmark = pytest.mark.tensorflow

V1 = tf.compat.v1
RAW = tf.raw_ops

OPENS = {
    "read": lambda path: RAW.ReadFile(filename=path),
    "read_in_a_function": lambda path: tf.function(lambda p: tf.strings.join([RAW.ReadFile(filename=p), ""]))(path),
    "read_in_a_branch": lambda path: tf.cond(tf.equal(path, ""), lambda: path, lambda: RAW.ReadFile(filename=path)),
    "restored": lambda path: RAW.RestoreV2(prefix=path, tensor_names=["v"], shape_and_slices=[""], dtypes=[tf.float32])[
        0
    ],
    "restored_v1": lambda path: RAW.Restore(file_pattern=path, tensor_name="v", dt=tf.float32),
    "restored_slice": lambda path: RAW.RestoreSlice(
        file_pattern=path, tensor_name="v", shape_and_slice="", dt=tf.float32
    ),
    "listed": lambda path: RAW.MatchingFiles(pattern=path),
    "lines": lambda path: tf.data.experimental.get_single_element(tf.data.TextLineDataset(path).take(1)),
    "records": lambda path: tf.data.experimental.get_single_element(tf.data.TFRecordDataset(path).take(1)),
    "names": lambda path: tf.data.experimental.get_single_element(tf.data.Dataset.list_files(path).take(1)),
    "matrix": lambda path: RAW.LoadAndRemapMatrix(
        ckpt_path=path,
        old_tensor_name="v",
        row_remapping=[0],
        col_remapping=tf.zeros([0], tf.int64),
        initializing_values=tf.zeros([0]),
        num_rows=1,
        num_cols=1,
    ),
    "vocabulary": lambda path: (
        RAW.GenerateVocabRemapping(
            new_vocab_file=path, old_vocab_file=path, new_vocab_offset=0, num_new_vocab=1
        ).remapping
    ),
}
WRITES = {"written", "logged", "save/control_dependency", "save/restore_all", "table"}


@pytest.fixture(scope="module")
def folder(models: Path) -> Path:
    where = models / "opens_files"
    with tf.Graph().as_default(), V1.Session() as session:
        path = V1.placeholder(tf.string, [], name="path")
        for name, make in OPENS.items():
            tf.identity(make(path), name=name)
        variable = V1.get_variable("v", initializer=tf.constant(7.0), use_resource=True)
        doubled = tf.multiply(variable.read_value(), 2.0, name="doubled")
        tf.group(RAW.WriteFile(filename=path, contents="x"), name="written")
        writer = RAW.SummaryWriter()
        logged = RAW.CreateSummaryFileWriter(
            writer=writer, logdir=path, max_queue=1, flush_millis=1, filename_suffix=""
        )
        tf.group(logged, name="logged")
        table = RAW.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64)
        filled = RAW.InitializeTableFromTextFileV2(table_handle=table, filename=path, key_index=-2, value_index=-1)
        tf.group(filled, name="table")
        V1.train.Saver([variable])
        session.run(V1.global_variables_initializer())
        V1.saved_model.simple_save(session, str(where), {"path": path}, {"y": doubled})
    return where


@pytest.fixture(scope="module")
def pool(folder: Path) -> Iterator[PoolProcess]:
    model = f'[[model]]\nname = "m"\npath = "{folder}"\n'
    with pool_process(stub_config('listen = ["tcp://127.0.0.1:*"]', '["cpu"]', model)) as running:
        yield running


@pytest.fixture
def far(pool: PoolProcess) -> Iterator[Client]:
    endpoint = next(line.split()[5] for line in pool.text().splitlines() if "listening at tcp" in line)
    with Client(endpoint) as client:
        yield client


@pytest.fixture
def near(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


def test_it_reads_variables(far: Client) -> None:
    assert far.session("m").run("doubled:0") == 14.0


@pytest.mark.parametrize("fetch", [*(f"{name}:0" for name in OPENS), *sorted(WRITES)])
def test_it_opens_nothing(far: Client, tmp_path: Path, fetch: str) -> None:
    file = tmp_path / "file"
    file.write_text("a secret\n")
    feeds = {"path:0": str(file)} if not fetch.startswith("save/") else {"save/Const:0": str(file)}
    with pytest.raises(errors.NotAllowed, match=r'runs graphs which write state or read files .* the right "sessions"'):
        far.session("m").run(fetch, feeds)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "a secret\n"


def test_whoever_sends_another_s_signature_opens_nothing(far: Client, tmp_path: Path) -> None:
    """Those that the pool makes of a run are as closed as the run."""
    file = tmp_path / "file"
    file.write_text("a secret\n")
    for signature in ("Session.run", "Session.run, read-only", "Session.run, which writes", "Session.run, private"):
        with pytest.raises(errors.NotAllowed, match='the right "sessions"'):
            far.run("m", {"path:0": str(file)}, signature=signature, outputs=["read:0"])


def test_on_the_same_machine_it_may_and_the_model_keeps_to_no_worker(
    near: Client, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("a text\n")
    session = near.session("m")
    assert session.run("read:0", {"path:0": str(file)}) == b"a text\n"
    assert session.run("lines:0", {"path:0": str(file)}) == b"a text"
    assert session.run("restored:0", {"path:0": f"{folder}/variables/variables"}) == 7.0
    assert near.models()[0].scheduling.affinity is None
