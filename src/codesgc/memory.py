"""How much memory may still be taken, and a refusal before it is taken in vain."""

import math
import os
from pathlib import Path

from codesgc.errors import InputError

SMALL = 1 << 28  # bytes that are not worth a look


def free_bytes() -> int:
    """Memory that may still be taken: what the system says is available, or less where a control group limits it."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) << 10
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        free = free if limit == "max" else min(free, int(limit) - used)
    except (OSError, ValueError):
        pass
    return free


def check_fits(what: str, *shape: int, size: int = 4) -> None:
    """An error for a tensor that does not fit: systems grant what they do not have, and end whom they gave it to."""
    needed = size * math.prod(shape)
    if needed > SMALL and needed > (free := free_bytes()):
        raise InputError(
            f"{what} of shape {shape} takes {needed / 2**30:.1f} GiB, and {max(free, 0) / 2**30:.1f} GiB are free: "
            "take a smaller rank, order or number of channels"
        )
