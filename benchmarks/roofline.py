"""The filter's rates against what this machine can do: how much of it is reached.

`filter(S, h, m) = sum_k T_k(S) h diag(m_k)` with K = 10 and 32 columns, on S = D^-1/2 A D^-1/2 of each graph. One
product with S is 2 nnz 32 floating-point operations, and gathers nnz rows of 128 bytes, with 4 bytes each of index
and value; a forward pass has K products, and so has a backward pass with both gradients. Additions of terms are not
counted.

The plain gather is what the same reads cost and hardly anything else, in the same process and in turns with the
filter: the rows of h at the column indices of S, in their order, summed by row with weights by torch's vectorised
`embedding_bag`, or copied by `index_select` into a buffer that stays in cache; the faster of the two. A kernel that
visits the rows in a better order, or keeps more in registers, can do better than that; what it cannot pass is the
bandwidth of the cache it reads from, so that reading and copying at sizes that fit L2, L3 and neither stand below.

    python benchmarks/roofline.py --datasets cora squirrel --rounds 9
"""

import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from common import TEN, Report, Row, interleaved, normalised, parse, parser, spread, timed
from torch import Tensor

from codesgc import MATRICES
from codesgc.engine import CSR, filter

ORDER, COLUMNS = 10, 32
ROW = 4 * COLUMNS  # bytes


def caches() -> dict[str, int]:
    """Bytes of the caches that hold data: {"L1": ..., "L2": ..., "L3": ...}; empty where the system does not tell."""
    found = {}
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found[f"L{level}"] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1]]
    return found


def bandwidths(rounds: int, quick: bool) -> dict[str, tuple[float, float]]:
    """(read, copied) GB a second where all buffers fill half of L2, half of L3, and more than every cache.

    Reading is the dot product of two arrays; bytes copied count as read and as written.
    """
    sizes = {"L2": 1 << 20, "L3": 16 << 20} | {k: v for k, v in caches().items() if k in ("L2", "L3")}
    quarters = {name: size // 4 for name, size in sizes.items()} | {"RAM": 4 * max(sizes.values())}
    if quick:
        quarters = {"L2": quarters["L2"]}
    rates = {}
    for name, size in quarters.items():
        a, b = torch.ones(size // 4), torch.ones(size // 4)
        repeats = max(1, (1 << 26) // size)
        calls: tuple[Callable[[], object], ...] = (lambda a=a, b=b: torch.dot(a, b), lambda a=a, b=b: b.copy_(a))
        read, copied = (2e-9 * size / min(timed(call, repeats) for _ in range(rounds + 1)) for call in calls)
        rates[name] = (read, copied)
    return rates


def gathers(S: CSR, h: Tensor) -> dict[str, Callable[[], object]]:
    """Two ways to read the rows of h at the indices of S in their order, and hardly anything else."""
    indptr, indices = S.indptr.long()[:-1], S.indices.long()
    chunks = indices.int().split(1024 * torch.get_num_threads())
    buffer = torch.empty(1024 * torch.get_num_threads(), COLUMNS)
    outs = [buffer[: len(chunk)] for chunk in chunks]

    def bag() -> None:
        F.embedding_bag(indices, h, indptr, mode="sum", per_sample_weights=S.values)

    def select() -> None:
        for chunk, out in zip(chunks, outs, strict=True):
            torch.index_select(h, 0, chunk, out=out)

    return {"bag": bag, "select": select}


def rows(args: Namespace) -> Iterator[Row]:
    for dataset in args.datasets:
        S = MATRICES["sym"]()(normalised(dataset), dtype=torch.float32).t
        # every thread has a replicate of its own, so that all of them have work
        generator = torch.Generator().manual_seed(0)
        h = torch.randn(args.threads, S.shape[0], COLUMNS, generator=generator)
        m = torch.randn(args.threads, ORDER + 1, COLUMNS, generator=generator)
        dy = torch.randn(h.shape, generator=generator)
        leaves = h.clone().requires_grad_(), m.clone().requires_grad_()
        y = filter(S, *leaves)
        calls: dict[str, Callable[[], object]] = {
            "forward": lambda S=S, h=h, m=m: filter(S, h, m),
            "backward": lambda y=y, leaves=leaves, dy=dy: torch.autograd.grad(y, leaves, dy, retain_graph=True),
            **gathers(S, h[0]),
        }
        with torch.no_grad():
            taken = interleaved(calls, args.rounds, budget=args.budget)
        products = ORDER * S.nnz * args.threads
        plain = [S.nnz * ROW / min(bag, select) for bag, select in zip(taken["bag"], taken["select"], strict=True)]
        yield {
            "dataset": dataset,
            "nodes": S.shape[0],
            "nnz": S.nnz,
            "seconds": taken,
            "flops": {way: [2 * products * COLUMNS / t for t in taken[way]] for way in ("forward", "backward")},
            "bytes": {way: [products * (ROW + 8) / t for t in taken[way]] for way in ("forward", "backward")},
            "gather": plain,
            "share": {
                way: [products * ROW / t / best for t, best in zip(taken[way], plain, strict=True)]
                for way in ("forward", "backward")
            },
        }


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(parser(__doc__, TEN, rounds=5), argv)
    rates = bandwidths(args.rounds, args.quick)
    sizes = ", ".join(f"{name} {size / 2**20:.3g} MiB" for name, size in sorted(caches().items()))

    bandwidth = ", ".join(f"{name} {read:.3g} / {copied:.3g}" for name, (read, copied) in rates.items())

    def share(way: str) -> Callable[[Row], str]:
        return lambda row: f"{100 * statistics.median(row['share'][way]):.0f} %"

    Report(
        f"The filter's rates, K = {ORDER}, {COLUMNS} columns, {args.threads} replicate(s)",
        {
            "dataset": lambda row: row["dataset"],
            "nodes": lambda row: str(row["nodes"]),
            "nnz": lambda row: str(row["nnz"]),
            "h MiB": lambda row: f"{row['nodes'] * ROW / 2**20:.2f}",
            "forward ms": lambda row: spread(row["seconds"]["forward"], 1e3),
            "GFLOP/s": lambda row: spread(row["flops"]["forward"], 1e-9),
            "GB/s": lambda row: spread(row["bytes"]["forward"], 1e-9),
            "plain gather GB/s": lambda row: spread(row["gather"], 1e-9),
            "share": share("forward"),
            "backward ms": lambda row: spread(row["seconds"]["backward"], 1e3),
            "its share": share("backward"),
        },
        notes=[
            f"This machine reads / copies, GB/s: {bandwidth} (half of a cache filled; caches: {sizes}).",
            "Median (least-greatest) over the rounds. GB/s: rows gathered, with index and value. Plain gather: the "
            "same rows in the same order, by the faster of `embedding_bag` and `index_select`; share: the filter's "
            "rows a second against it. Backward: both gradients. One replicate a thread; h MiB is the size of one.",
        ],
    ).run(args, rows(args))


if __name__ == "__main__":
    main()
