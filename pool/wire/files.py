"""The files of a model: what tells whether they are still what they were."""

import hashlib
import os
from collections.abc import Iterator
from typing import NamedTuple

MOST_FILES = 10_000


class Files(NamedTuple):
    # Of their names, sizes and times of change. `cp -p` keeps the time of a modification, but not that of a change.
    digest: str
    nbytes: int
    changed_ns: int  # when the last one was changed, on the clock of its disk


def files_at(*paths: str) -> Files:
    """Those of a model's path, and of others that belong to it. Reads none of them. Raises `OSError`."""
    digest = hashlib.sha256()
    nbytes = changed_ns = count = 0
    for path in paths:
        for file in sorted(_below(path)):
            about = os.stat(file)
            digest.update(repr((file, about.st_size, about.st_ctime_ns)).encode())
            nbytes += about.st_size
            changed_ns = max(changed_ns, about.st_ctime_ns)
            count += 1
            if count > MOST_FILES:
                raise OSError(f"{path} holds more than {MOST_FILES} files")
    return Files(digest.hexdigest()[:16], nbytes, changed_ns)


def handler_files(handler: str | None, folder: str | None) -> list[str]:
    """The file of a handler's module, if it lies in `handler_path`."""
    file = os.path.join(folder or "", *(handler or "").partition(":")[0].split(".")) + ".py"
    return [file] if folder and os.path.exists(file) else []


def _below(path: str) -> Iterator[str]:
    """Of a folder all files, of a checkpoint's graph also its data, of any other file that file."""
    if os.path.isdir(path):
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path)
            elif not entry.name.endswith(".pyc"):  # Python may compile what lies beside a handler while it runs
                yield entry.path
    elif path.endswith(".meta"):
        folder, stem = os.path.split(path.removesuffix("meta"))
        yield from (entry.path for entry in os.scandir(folder or ".") if entry.name.startswith(stem))
    else:
        yield path
