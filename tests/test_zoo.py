"""The published settings and the paper's numbers."""

import importlib.util
import json
from pathlib import Path

import pytest
from oracles import normal, random_adjacency

from codesgc import DATASETS, DECOMPOSITIONS, MODELS, Config, InputError, build_model, preset
from codesgc.zoo import find_model, paper_value
from codesgc.zoo.published import origin

ROOT = Path(__file__).resolve().parents[1]
PAPER_DATASETS = [
    "cora",
    "citeseer",
    "pubmed",
    "computers",
    "photo",
    "chameleon",
    "squirrel",
    "actor",
    "texas",
    "cornell",
]
CODESGC = [f"{letter}-{name}" for letter in "LH" for name in ("CP", "Tucker", "Tucker2", "Tucker1")]
REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference"


@pytest.mark.parametrize("dataset", PAPER_DATASETS)
@pytest.mark.parametrize("model", [*CODESGC, "JacobiConv"])
def test_every_pair_of_the_paper_has_settings_that_build(model: str, dataset: str) -> None:
    """Every learning rate, weight decay and dropout has a factor or a place that it is for, and every factor a rate."""
    assert origin(dataset, model) == "published"
    config = preset(dataset, model)
    built = build_model(config, 6, 3)
    groups = set(built.groups())
    assert set(config.lr) - {"default"} == groups
    assert set(config.weight_decay) - {"default"} == groups
    places = {*DECOMPOSITIONS[config.decomposition].dropouts, *(["features"] if built.encoder else [])}
    assert set(config.dropout) == places
    assert built(normal(5, 6).float(), random_adjacency(5, 0).nonzero().T).shape == (5, 3)


@pytest.mark.parametrize("dataset", PAPER_DATASETS)
def test_settings_are_in_the_ranges_that_were_searched(dataset: str) -> None:
    """The paper's appendix, "Model hyperparameter"."""
    for model in CODESGC:
        config = preset(dataset, model)
        assert set(config.lr.values()) <= {0.0005, 0.001, 0.005, 0.01, 0.05}
        assert set(config.weight_decay.values()) <= {0.0, 5e-5, 1e-4, 5e-4, 1e-3}
        assert all(round(10 * rate) == pytest.approx(10 * rate) and rate < 1 for rate in config.dropout.values())
        assert config.options["a"] in [-1 + 0.25 * n for n in range(13)]
        assert config.options["b"] in [-0.5 + 0.25 * n for n in range(11)]
        assert config.options.get("rank", 32) in ({32} if model.endswith("CP") else {4, 8, 16, 32})
        assert (config.order, config.epochs, config.patience) == (10, 1000, 200)


def test_settings_are_spot_checked() -> None:
    config = preset("cora", "L-CP")
    assert config.options == {"a": 0.25, "b": 0.5}
    assert config.dropout == {"input": 0.5, "C": 0.3, "Z": 0.2}
    assert (config.lr["C"], config.lr["M"], config.lr["P"]) == (0.05, 0.05, 0.0005)
    assert (config.weight_decay["C"], config.weight_decay["M"], config.weight_decay["P"]) == (0.0005, 5e-05, 0.0)
    assert preset("cora", "JacobiConv").options == {"a": 2.0, "b": -0.25, "gamma": 0.5}
    assert preset("cora", "H-Tucker2").options["rank"] == 8


def test_without_published_settings_the_row_of_the_zoo_is_taken() -> None:
    assert preset("squirrel_filtered", "GCN") == MODELS["GCN"]
    assert preset(None, "L-CP") == preset("my graph", "L-CP") == MODELS["L-CP"]
    assert {origin(None, "L-CP"), origin("squirrel_filtered", "GCN")} == {"default"}


def test_found_settings_are_those_of_the_committed_studies() -> None:
    spec = importlib.util.spec_from_file_location("found_settings", ROOT / "tools" / "found_settings.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    settings = json.loads((ROOT / "src/codesgc/zoo/found.json").read_text())["settings"]
    assert settings == tool.found(ROOT / "results" / "studies"), "run: python tools/found_settings.py"
    for dataset, models in settings.items():
        for model in models:
            if origin(dataset, model) != "published":
                study = json.loads((ROOT / "results/studies" / dataset / f"{model}.json").read_text())
                assert preset(dataset, model).to_dict() == study["best"]["config"]
                assert origin(dataset, model) == "found by our search"


# Tables 2 and 3 of the paper, copied by hand from its source
PAPER = [
    ("cora", "L-CP", 89.23, 0.71),
    ("cora", "L-Tucker", 89.41, 0.85),
    ("cora", "JacobiConv", 88.98, 0.46),
    ("cora", "H-Tucker2", 88.65, 0.94),
    ("citeseer", "H-Tucker1", 81.58, 0.90),
    ("pubmed", "ChebNet", 87.95, 0.28),
    ("computers", "GCN", 83.32, 0.33),
    ("photo", "GPR-GNN", 93.85, 0.28),
    ("chameleon", "L-Tucker2", 74.79, 0.85),
    ("actor", "L-CP", 41.98, 1.00),
    ("actor", "BernNet", 41.79, 1.01),
    ("squirrel", "L-CP", 62.68, 0.59),
    ("squirrel", "APPNP", 34.71, 0.57),
    ("texas", "L-CP", 90.66, 2.62),
    ("cornell", "L-Tucker1", 82.98, 5.96),
]


@pytest.mark.parametrize(("dataset", "model", "mean", "half_width"), PAPER)
def test_the_papers_numbers(dataset: str, model: str, mean: float, half_width: float) -> None:
    assert paper_value(dataset, model) == (mean, half_width)


def test_the_paper_has_numbers_for_ten_graphs_and_fourteen_models() -> None:
    reported = {"ChebNet", "GCN", "APPNP", "GPR-GNN", "BernNet", "JacobiConv", *CODESGC}
    for dataset in PAPER_DATASETS:
        assert {model for model in MODELS if paper_value(dataset, model)} == reported
    assert paper_value(None, "L-CP") is None and paper_value("cora", "SGC") is None


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the tables of the paper are not beside this checkout")
def test_all_numbers_are_those_of_the_reference() -> None:
    tables = json.loads((REFERENCE / "paper_tables.json").read_text())
    checked = 0
    for table in ("main_results", "ablation"):
        for dataset, row in tables.get(table, {}).items():
            for model, cell in row.items():
                name = model.replace("CoDeSGC-", "L-")
                assert paper_value(dataset.lower(), name) == (cell["mean"], cell["ci"]), (dataset, model)
                checked += 1
    assert checked >= 80


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the settings are not beside this checkout")
def test_all_settings_are_those_of_the_reference() -> None:
    """There the core of Tucker2 and Tucker1 is called C, and R is the rank."""
    reference = json.loads((REFERENCE / "published_hyperparameters.json").read_text())
    for dataset in PAPER_DATASETS:
        for model, given in reference[dataset].items():
            config = preset(dataset, model)
            rename = {"C": "G"} if model.endswith(("Tucker1", "Tucker2")) else {}
            for part in ("lr", "weight_decay", "dropout"):
                expected = {rename.get(k, k): v for k, v in given[part].items()}
                found = {k: v for k, v in getattr(config, part).items() if k in expected or k != "default"}
                assert found == expected, (dataset, model, part)
            assert (config.options["a"], config.options["b"]) == (given["a"], given["b"])
            assert config.options.get("rank") == given.get("R")
            assert config.options.get("gamma") == given.get("gamma")


def test_the_zoo_knows_the_datasets() -> None:
    assert set(PAPER_DATASETS) <= set(DATASETS)


def test_names_are_found_whatever_their_capitals() -> None:
    assert find_model("l-cp") is MODELS["L-CP"] and find_model("CHEBNETII") is MODELS["ChebNetII"]
    with pytest.raises(InputError, match=r"model 'L-Tuker' is unknown: .* did you mean 'L-Tucker'"):
        find_model("L-Tuker")


@pytest.mark.parametrize("name", MODELS)
def test_rows_are_named_after_themselves(name: str) -> None:
    assert MODELS[name].model == name


def test_the_prior_is_in_files_only_where_it_is_not_the_default() -> None:
    """Files from before there was a choice stay what they are."""
    assert "prior" not in Config().to_dict()
    own = Config(prior="validation")
    assert own.to_dict()["prior"] == "validation" and Config.from_dict(own.to_dict()) == own
    with pytest.raises(InputError, match=r"prior 'validate' is unknown: .* did you mean 'validation'"):
        Config(prior="validate")
