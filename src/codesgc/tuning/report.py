"""What came of a study: its trials, its best one, which family won, and ten runs with it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from codesgc.errors import InputError
from codesgc.training import PROTOCOLS, Result, bootstrap_interval
from codesgc.zoo import Config

STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.RUNNING: "running"}


def best_trial(trials: Sequence[FrozenTrial]) -> FrozenTrial:
    """The complete trial with the greatest value; of equal ones the first."""
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not done:
        raise InputError("the study has no complete trial yet: expected at least one; go on with it")
    return max(done, key=lambda trial: (trial.value, -trial.number))


def config_of(trial: FrozenTrial) -> Config:
    return Config.from_dict(trial.user_attrs["config"])


def best_of_families(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The best complete trial of every model, the best first."""
    models: dict[str, list[FrozenTrial]] = {}
    for trial in trials:
        if trial.state == TrialState.COMPLETE:
            models.setdefault(trial.user_attrs["config"]["model"], []).append(trial)
    return sorted(map(best_trial, models.values()), key=lambda trial: (-(trial.value or 0.0), trial.number))


def best_setting(trial: FrozenTrial) -> dict[str, Any]:
    result = trial.user_attrs["result"]
    return {
        "number": trial.number,
        "value": trial.value,
        "ci95": bootstrap_interval(result["val_accuracy"]),
        "val_accuracy": result["val_accuracy"],
        "params": trial.params,
        "config": trial.user_attrs["config"],
    }


def family_rows(
    winners: Sequence[FrozenTrial], trials: Sequence[FrozenTrial], results: Mapping[str, Result]
) -> list[dict[str, Any]]:
    """Each family's best trial, and by how much the first is ahead of it, run by run with equal splits.

    `margin_val` and `margin_test` are over the final runs where there are some, else over those of the search.
    """
    begun = Counter(trial.user_attrs["config"]["model"] for trial in trials if "config" in trial.user_attrs)
    rows = []
    for trial in winners:
        model, first = trial.user_attrs["config"]["model"], winners[0].user_attrs["config"]["model"]
        row = {"model": model, "trials": begun[model], **best_setting(trial)}
        if model in results:
            ours, theirs = results[first].runs, results[model].runs
            row |= {"test_mean": results[model].test_mean, "test_ci95": results[model].test_ci95}
            row["margin_val"] = margin([r.val_accuracy for r in ours], [r.val_accuracy for r in theirs])
            row["margin_test"] = margin([r.test_accuracy for r in ours], [r.test_accuracy for r in theirs])
        else:
            values = (t.user_attrs["result"]["val_accuracy"] for t in (winners[0], trial))
            row["margin_val"] = margin(*values)
        rows.append(row)
    return rows


def margin(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Mean difference of pairs, and half-width of its 95 % bootstrap interval.

    >>> margin([90.0, 92.0], [89.0, 91.0])
    {'mean': 1.0, 'ci95': 0.0}
    """
    differences = [a - b for a, b in zip(ours, theirs, strict=False)]
    return {"mean": sum(differences) / len(differences), "ci95": bootstrap_interval(differences)}


def search_section(
    identity: Mapping[str, Any], final_seeds: Sequence[int], trial: FrozenTrial, confirm_seeds: Sequence[int] = ()
) -> dict[str, Any]:
    """For a result file: what was searched, and on which splits it was chosen and is reported on."""
    seeds = list(range(identity["runs"]))
    return {
        "trial": trial.number,
        "value": trial.value,
        "search_seeds": seeds,
        **({"confirm_seeds": list(confirm_seeds)} if confirm_seeds else {}),
        "report_seeds": list(final_seeds),
        "splits": "random_split(labels, seed) of these seeds; "
        f"{len({*seeds, *confirm_seeds} & {*final_seeds})} in both",
        "space": identity["space"],
    }


def summary(study: optuna.Study, more: Mapping[str, Any]) -> dict[str, Any]:
    """The study as plain data: identity, counts, the best setting, and every trial that has not failed.

    `more` goes in as it is; the best setting is the first of its "confirmed" ones, if there are any.
    """
    trials = study.get_trials(deepcopy=False)
    identity = study.user_attrs["codesgc"]
    begun = [trial.datetime_start for trial in trials if trial.datetime_start is not None]
    ended = [trial.datetime_complete for trial in trials if trial.datetime_complete is not None]
    best = trials[more["confirmed"][0]["number"]] if "confirmed" in more else best_trial(trials)
    return {
        **identity,
        "search_seeds": list(range(identity["runs"])),
        "report_first_seed": PROTOCOLS[identity["protocol"]],
        "trials": counts(trials),
        "epochs": sum(sum(t.user_attrs.get("result", {}).get("epochs", [])) for t in trials if not _copied(t)),
        "seconds": round((max(ended) - min(begun)).total_seconds(), 3) if begun and ended else 0.0,
        "workers": len({trial.user_attrs["worker"] for trial in trials if "worker" in trial.user_attrs}),
        "best": best_setting(best),
        "optuna": optuna.__version__,
        **more,
        "all": [_row(trial) for trial in trials if trial.state != TrialState.FAIL],
    }


def counts(trials: Sequence[FrozenTrial]) -> dict[str, int]:
    """How many there are in each state."""
    failed = sum(trial.state == TrialState.FAIL for trial in trials)
    return {name: sum(t.state == state for t in trials) for state, name in STATES.items()} | {"failed": failed}


def _copied(trial: FrozenTrial) -> bool:
    return "as_trial" in trial.user_attrs.get("result", {})


def _row(trial: FrozenTrial) -> dict[str, Any]:
    result = trial.user_attrs.get("result", {})
    kept = {key: result[key] for key in ("val_accuracy", "epochs", "seconds", "as_trial") if key in result}
    return {
        "number": trial.number,
        "state": STATES.get(trial.state, "waiting"),
        "value": trial.value,
        "params": trial.params,
        **kept,
    }


def dumps(data: Mapping[str, Any]) -> str:
    """JSON with one line for each entry, and for each trial."""
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in data.items() if key != "all"]
    rows = ",\n".join(f"  {json.dumps(row)}" for row in data.get("all", []))
    return "{\n" + ",\n".join([*lines, f' "all": [\n{rows}\n ]']) + "\n}\n"
