"""The own messages: `door.bin` is what the .proto files say, and they say what the public packages say."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import Default

from pool.door import protos

FOLDER = Path(protos.__file__).parent


def test_the_shipped_descriptors_are_those_of_the_proto_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(FOLDER), "--include_imports"]
    made = tmp_path / "door.bin"
    subprocess.run([*command, "--descriptor_set_out", str(made), *map(str, FOLDER.glob("*.proto"))], check=True)
    both = [FileDescriptorSet.FromString(path.read_bytes()).file for path in (made, FOLDER / "door.bin")]
    assert sorted(both[0], key=str) == sorted(both[1], key=str)


def facts(kind: Any) -> Iterator[tuple[Any, ...]]:
    """Of a message, an enum or a service."""
    for field in getattr(kind, "fields", ()):
        about = field.message_type or field.enum_type
        group = field.containing_oneof and field.containing_oneof.name
        yield field.full_name, field.number, field.type, field.is_repeated, about and about.full_name, group
    for value in getattr(kind, "values", ()):
        yield kind.full_name, value.name, value.number
    for each in getattr(kind, "methods", ()):
        kinds = each.input_type.full_name, each.output_type.full_name
        yield each.full_name, *kinds, each.client_streaming, each.server_streaming
    for nested in (*getattr(kind, "nested_types", ()), *getattr(kind, "enum_types", ())):
        yield from facts(nested)


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
def test_names_numbers_types_and_labels_are_those_of_the_public_packages() -> None:
    from tensorflow_serving.apis import model_service_pb2, prediction_service_pb2  # noqa: F401
    from tritonclient.grpc import service_pb2  # noqa: F401

    seen, ours = 0, ("tensorflow.PackedTensor", "grpc.health.v1")
    for name in ("tensorflow", "error_codes", "serving", "inference"):
        file, real = protos.POOL.FindFileByName(f"{name}.proto"), Default()
        kinds = [(each, real.FindMessageTypeByName) for each in file.message_types_by_name.values()]
        kinds += [(each, real.FindEnumTypeByName) for each in file.enum_types_by_name.values()]
        kinds += [(each, real.FindServiceByName) for each in file.services_by_name.values()]
        for kind, find in kinds:
            if not kind.full_name.startswith(ours):
                assert not set(facts(kind)) - set(facts(find(kind.full_name)))
                seen += 1
    assert seen > 60
