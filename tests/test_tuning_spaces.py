"""Search spaces: the published ones, what a user makes of them, and that every point of them is a model."""

import json

import optuna
import pytest
from optuna.samplers import RandomSampler

from codesgc import InputError, settings
from codesgc.tuning import AUTO, Choices, Range, make_space
from codesgc.tuning.ranges import parse_dimension
from codesgc.tuning.spaces import parse_space, read_space
from codesgc.zoo import MODELS, preset
from codesgc.zoo.published import origin

# paper, appendix "Model hyperparameter"
LR = [0.0005, 0.001, 0.005, 0.01, 0.05]
WEIGHT_DECAY = [0.0, 5e-5, 1e-4, 5e-4, 1e-3]
TENTHS = [n / 10 for n in range(10)]
A = [-1 + n / 4 for n in range(13)]
B = [-0.5 + n / 4 for n in range(11)]


def points(data):
    """All values of a dimension, from its JSON."""
    if isinstance(data, list):
        return data
    count = round((data["high"] - data["low"]) / data["step"])
    return [round(data["low"] + n * data["step"], 10) for n in range(count + 1)]


def drawn(space, number, seed=0):
    study = optuna.create_study(sampler=RandomSampler(seed=seed))
    return [space.suggest(study.ask()) for _ in range(number)]


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.mark.parametrize("model", MODELS)
def test_every_point_of_a_published_space_is_a_model(model):
    space = make_space(model)
    space.check(6, 3)
    configs = drawn(space, 6)
    for config in configs:
        settings.check(config, 6, 3)
        assert config.model == model
    assert len({repr(config) for config in configs}) == 6


@pytest.mark.parametrize("model", [m for m in MODELS if m[1] == "-" or m == "JacobiConv"])
def test_the_papers_ranges(model):
    found = {key: points(data) for key, data in make_space(model).to_json().items()}
    assert found.pop("a") == A and found.pop("b") == B
    if model == "JacobiConv":
        assert found.pop("gamma") == [0.5, 1.0, 1.5, 2.0]
    elif not model.endswith("CP"):
        assert found.pop("rank") == [4, 8, 16, 32]
    expected = {"lr": LR, "weight_decay": WEIGHT_DECAY, "dropout": TENTHS}
    assert all(found[key] == expected[key.partition(".")[0]] for key in found)
    if model == "H-Tucker":
        assert {key.partition(".")[2] for key in found if key.startswith("lr")} == {"C", "G", "M", "P", "encoder"}
        assert {key.partition(".")[2] for key in found if key[0] == "d"} == {"features", "input", "C", "G", "Z"}


def test_published_settings_lie_in_the_space():
    """What the authors found, they found there."""
    checked = 0
    for dataset in ("cora", "texas", "squirrel"):
        for model in MODELS:
            if origin(dataset, model) == "published":
                listed = dict(settings.listed(preset(dataset, model)))
                for key, data in make_space(model).to_json().items():
                    assert json.loads(listed[key]) in points(data), (dataset, model, key)
                    checked += 1
    assert checked > 200


def test_families_have_the_dimensions_of_their_parts_alone():
    space = make_space(AUTO)
    space.check(6, 3)
    configs = drawn(space, 60)
    for config in configs:
        settings.check(config, 6, 3)
        assert ("a" in config.options) == (config.basis == "jacobi")
        assert ("rank" in config.options) == (config.decomposition != "cp")
    assert {config.model for config in configs} == {model for model in MODELS if model[1] == "-"}
    assert len({config.basis for config in configs}) == 6


def test_narrowing_widening_and_fixing():
    own = parse_space(["lr=0.01,0.1", "lr.C=0.5", "dropout=0:0.2:0.1", "order=2:6:2", "basis=chebyshev", "rank=8,64"])
    space = make_space("L-CP", {"weight_decay": 0.25}, own)
    assert space.to_json() == {
        "basis": ["chebyshev"],
        "order": {"low": 2, "high": 6, "step": 2},
        "rank": [8, 64],
        **{key: {"low": 0, "high": 0.2, "step": 0.1} for key in ["dropout.input", "dropout.C", "dropout.Z"]},
        "lr.C": [0.5],
        "lr.M": [0.01, 0.1],
        "lr.P": [0.01, 0.1],
    }
    for config in drawn(space, 10):
        assert config.lr["C"] == 0.5 and config.weight_decay == {"default": 0.25} and config.order in (2, 4, 6)
        assert all(rate in (0.0, 0.1, 0.2) for place, rate in config.dropout.items() if place != "default")


def test_grid_points_are_the_numbers_that_a_user_would_write():
    (config,) = drawn(make_space("L-CP", {}, parse_space(["dropout.C=0.3:0.3:0.1", "dropout.Z=0.5:0.59:0.1"])), 1)
    assert config.dropout["C"] == 0.3 and config.dropout["Z"] == 0.5


def test_a_space_from_a_file(tmp_path):
    file = tmp_path / "space.json"
    file.write_text('{"lr": {"low": 0.001, "high": 0.1, "log": true}, "rank": 8, "bias": [true, false]}')
    assert read_space(str(file)) == {
        "lr": Range(0.001, 0.1, log=True),
        "rank": Choices((8,)),
        "bias": Choices((True, False)),
    }


@pytest.mark.parametrize(
    "text, message",
    [
        ("lr", "expected KEY=V1,V2"),
        ("lr=", "expected KEY=V1,V2"),
        ("lr=1,,2", "expected V1,V2"),
        ("lr=0.1:0.01", "is empty: expected LOW <= HIGH"),
        ("lr=0:1:0", "step 0: expected a number > 0"),
        ("lr=0:1:log", "begins above 0"),
        ("lr=a:b", "expected numbers"),
        ("lr=1:2:3:4", "expected V1,V2"),
        ("lr.Q=1", "space key of L-CP: 'lr.Q' is unknown"),
        ("ordr=1", "did you mean 'order'?"),
        ("order=-1,2", "order -1: expected a whole number"),
        ("dropout.C=0.5:2", "dropout.C 2.0: expected a number >= 0 and <= 1"),
        ("basis=chebishev", "did you mean 'chebyshev'?"),
        ("basis=1:2", "expected names"),
        ("a=-3:1", "a=-3.0, b="),
        ("seed.C=1", "is unknown"),
    ],
)
def test_mistakes_in_a_space(text, message):
    with pytest.raises(InputError) as error:
        make_space("L-CP", {}, parse_space([text])).check(6, 3)
    assert message in str(error.value)


def test_a_setting_and_a_dimension_of_one_name():
    with pytest.raises(InputError, match="in --set and in --space"):
        make_space("L-CP", {"a": 1.0}, {"a": parse_dimension("a", "0:1")})


@pytest.mark.parametrize("text", ["no json", "[1]", '{"lr": []}', '{"lr": {"low": 1}}', '{"lr": [[1]]}'])
def test_mistakes_in_a_file(text, tmp_path):
    file = tmp_path / "space.json"
    file.write_text(text)
    with pytest.raises(InputError, match="space"):
        read_space(str(file))
