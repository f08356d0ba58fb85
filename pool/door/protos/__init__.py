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

POOL = DescriptorPool()
for _file in FileDescriptorSet.FromString(files(__name__).joinpath("door.bin").read_bytes()).file:
    POOL.AddSerializedFile(_file.SerializeToString())


def message(name: str) -> Any:
    """The class of a message, by its full name."""
    return GetMessageClass(POOL.FindMessageTypeByName(name))
