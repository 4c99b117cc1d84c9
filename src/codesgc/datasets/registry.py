"""What can be loaded: every dataset with its statistics, every file with its size and SHA-256.

Plain data and no imports beyond the standard library, so that names can be listed at once.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Dataset:
    """One graph: how to read it, what it must turn out to be, whom to cite.

    `edges` counts undirected edges, each once. `homophilic` says whether neighbours tend to share a class.
    `files` are keys of `FILES`; a dataset without files is part of the package.

    >>> DATASETS["texas"].nodes, DATASETS["texas"].homophilic
    (183, False)
    """

    name: str
    reader: str
    files: tuple[str, ...]
    nodes: int
    edges: int
    features: int
    classes: int
    homophilic: bool
    source: str


@dataclass(frozen=True)
class File:
    """Size in bytes and SHA-256 of a file exactly as its publisher distributes it."""

    size: int
    sha256: str


# Each address is pinned to one commit; a file `planetoid/NAME` is at `PUBLISHERS["planetoid"] + NAME`.
PUBLISHERS: dict[str, str] = {
    "planetoid": "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data/",
    "amazon": "https://raw.githubusercontent.com/EdisonLeeeee/GraphData/f8022c26b917346f2a461ffec0ec5ae24b36de68/datasets/",
    "heterophilous": "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/a431395582e929d88271309716bea4fe24ce6318/data/",
}

# Cora's own Planetoid files are here for the comparison with the copy in the package; load_dataset does not use them.
FILES: dict[str, File] = {
    "planetoid/ind.cora.allx": File(257305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
    "planetoid/ind.cora.tx": File(148025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
    "planetoid/ind.cora.ally": File(47959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
    "planetoid/ind.cora.ty": File(28135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
    "planetoid/ind.cora.graph": File(59847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
    "planetoid/ind.cora.test.index": File(5000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"),
    "planetoid/ind.citeseer.allx": File(595021, "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668"),
    "planetoid/ind.citeseer.tx": File(260321, "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21"),
    "planetoid/ind.citeseer.ally": File(55623, "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95"),
    "planetoid/ind.citeseer.ty": File(24135, "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce"),
    "planetoid/ind.citeseer.graph": File(61987, "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7"),
    "planetoid/ind.citeseer.test.index": File(5000, "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4"),
    "planetoid/ind.pubmed.allx": File(7578385, "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e"),
    "planetoid/ind.pubmed.tx": File(405505, "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d"),
    "planetoid/ind.pubmed.ally": File(224739, "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e"),
    "planetoid/ind.pubmed.ty": File(12135, "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd"),
    "planetoid/ind.pubmed.graph": File(471808, "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9"),
    "planetoid/ind.pubmed.test.index": File(6000, "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5"),
    "amazon/amazon_cs.npz": File(3410531, "a6942db609f196b53503d91b99a02ad8d052d5d9be8ef41db976fb65f66ed1f3"),
    "amazon/amazon_photo.npz": File(1772672, "bdb98b54cd3125bfa69b23ba0aae84fabcb770c6727175b8f6eb1d64f3be4b2b"),
    "heterophilous/actor.npz": File(252956, "c350eef06b2c2a9bf8218be2b57cac6d4003d0922eb597a039e9123f75817816"),
    "heterophilous/chameleon.npz": File(177840, "4c640bd2877fc4f9f101531e2f977bc16445a54e09a5cb01178df608e552f3fd"),
    "heterophilous/chameleon_filtered.npz": File(
        58924, "bf46f07e1fb5249280447e5fe3100f3e82fc4b93ad1e13ffcfdec924b6ac0bb5"
    ),
    "heterophilous/cornell.npz": File(30515, "684c54ba3daa13b0ba1f04a3d6dd1b1175c1ae9bdeb982851fd4ff96d3aac298"),
    "heterophilous/squirrel.npz": File(704277, "d436e3b42c0546b105241c0ab0766097074e68e55f67b133eeb9b0162e55cbd9"),
    "heterophilous/squirrel_filtered.npz": File(
        208215, "f06370ffb3116c5de8b7a600005400b2293c025e0ce2f6916d8201a825505ac7"
    ),
    "heterophilous/texas.npz": File(28586, "b164b99e6c3d43e4ab07488ec59bd8c815f90cbc1bd4cf425ce587d2b534d844"),
}

PLANETOID_PARTS = ("allx", "tx", "ally", "ty", "graph", "test.index")


def planetoid_files(name: str) -> tuple[str, ...]:
    """The files that `readers.planetoid` needs; `x` and `y`, whose rows `allx` and `ally` repeat, are not among them.

    >>> planetoid_files("pubmed")[-1]
    'planetoid/ind.pubmed.test.index'
    """
    return tuple(f"planetoid/ind.{name}.{part}" for part in PLANETOID_PARTS)


_PLANETOID = "Sen et al., Collective classification in network data, 2008; files of Yang et al., ICML 2016"
_AMAZON = "Shchur et al., Pitfalls of graph neural network evaluation, 2018"
_WIKIPEDIA = "Rozemberczki et al., Multi-scale attributed node embedding, 2021; labels of Pei et al., ICLR 2020"
_FILTERED = "Platonov et al., A critical look at the evaluation of GNNs under heterophily, ICLR 2023"
_ACTOR = "Tang et al., Social influence analysis in large-scale networks, KDD 2009; graph of Pei et al., ICLR 2020"
_WEBKB = "Craven et al., WebKB, 1998; graph of Pei et al., ICLR 2020"


def _heterophilous(name: str, nodes: int, edges: int, features: int, source: str) -> Dataset:
    return Dataset(name, "heterophilous", (f"heterophilous/{name}.npz",), nodes, edges, features, 5, False, source)


# The paper's table gives PubMed five classes; the data have three.
DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset("cora", "packaged", (), 2708, 5278, 1433, 7, True, _PLANETOID),
        Dataset("citeseer", "planetoid", planetoid_files("citeseer"), 3327, 4552, 3703, 6, True, _PLANETOID),
        Dataset("pubmed", "planetoid", planetoid_files("pubmed"), 19717, 44324, 500, 3, True, _PLANETOID),
        Dataset("computers", "amazon", ("amazon/amazon_cs.npz",), 13752, 245861, 767, 10, True, _AMAZON),
        Dataset("photo", "amazon", ("amazon/amazon_photo.npz",), 7650, 119081, 745, 8, True, _AMAZON),
        _heterophilous("chameleon", 2277, 31371, 2325, _WIKIPEDIA),
        _heterophilous("squirrel", 5201, 198353, 2089, _WIKIPEDIA),
        _heterophilous("actor", 7600, 26659, 932, _ACTOR),
        _heterophilous("texas", 183, 279, 1703, _WEBKB),
        _heterophilous("cornell", 183, 277, 1703, _WEBKB),
        _heterophilous("chameleon_filtered", 890, 8854, 2325, _FILTERED),
        _heterophilous("squirrel_filtered", 2223, 46998, 2089, _FILTERED),
    )
}
