"""Files that are whole or not there: written beside the target, then renamed over it."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """A new file that takes the target's place when the block ends well: a reader sees the old one or the new one."""
    temporary = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(file: str | os.PathLike[str], text: str) -> None:
    """Replace a file by this text; pipes and devices are written to."""
    path = Path(os.path.realpath(file))
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    with replacing(path) as stream:
        stream.write(text.encode())
