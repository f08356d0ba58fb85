"""What outlives the pool: private folders of files, bounded in number and bytes.

Bytes that are to be kept come in, such as the inputs of jobs that killed their workers. Files go out, and what they
held for whoever reads one. It never overwrites a file that a newer release wrote, and never keeps the pool's loop from
its work for a disk.
"""

from pool.kept.files import Buffer, KeptFiles, write_whole
from pool.kept.format import NewerFiles, format_of, read_file
from pool.kept.quarantine import KeptJob, Quarantine, load, state_folder
from pool.kept.tokens import WrongTokens, add_token, read_tokens

__all__ = [
    "Buffer",
    "KeptFiles",
    "KeptJob",
    "NewerFiles",
    "Quarantine",
    "WrongTokens",
    "add_token",
    "format_of",
    "load",
    "read_file",
    "read_tokens",
    "state_folder",
    "write_whole",
]
