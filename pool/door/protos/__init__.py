"""The messages of the protocols: the public names and numbers of the .proto files here, compiled into `door.bin`.

They live in a descriptor pool of their own, for TensorFlow's and Triton's packages register the same names.
After a change: python -m grpc_tools.protoc -I pool/door/protos --include_imports
--descriptor_set_out pool/door/protos/door.bin pool/door/protos/*.proto
"""

from importlib.resources import files
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_POOL = DescriptorPool()
for _file in FileDescriptorSet.FromString(files(__name__).joinpath("door.bin").read_bytes()).file:
    _POOL.AddSerializedFile(_file.SerializeToString())


def message(name: str) -> Any:
    """The class of a message, by its full name. Raises `KeyError`."""
    return GetMessageClass(_POOL.FindMessageTypeByName(name))


def methods(service: str) -> dict[str, tuple[Any, Any]]:
    """The classes of the request and the response of each of a service's methods. Raises `KeyError`."""
    found = _POOL.FindServiceByName(service).methods
    return {each.name: (message(each.input_type.full_name), message(each.output_type.full_name)) for each in found}
