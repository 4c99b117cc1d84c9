"""Writes src/codesgc/zoo/found.json, the settings that searches have found, from the studies in results/studies.

    codesgc tune texas --model GCN --out build/studies/texas/GCN
    python tools/found_settings.py --take build/studies        # copies the summaries DATASET/MODEL/study.json

A model's setting is used by `preset` for a data set where its authors published none.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FIELDS = ("order", "hidden", "options", "dropout", "lr", "weight_decay")  # what searches change


def found(folder: Path) -> dict[str, dict[str, Any]]:
    """By data set and model: the fields of the best trial's configuration that its search may have changed."""
    settings: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.glob("*/*.json")):
        study = json.loads(file.read_text(encoding="utf-8"))
        config = study["best"]["config"]
        settings.setdefault(study["dataset"], {})[study["model"]] = {field: config[field] for field in FIELDS}
    return settings


def main(argv: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    options.add_argument("--take", metavar="DIR", type=Path, help="first copy DIR/DATASET/MODEL/study.json")
    options.add_argument("--studies", metavar="DIR", type=Path, default=ROOT / "results" / "studies")
    options.add_argument("--target", metavar="FILE", type=Path, default=ROOT / "src/codesgc/zoo/found.json")
    args = options.parse_args(argv)
    for file in args.take.glob("*/*/study.json") if args.take else ():
        kept = args.studies / file.parts[-3] / f"{file.parts[-2]}.json"
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, kept)
    data = json.loads(args.target.read_text(encoding="utf-8"))
    data["settings"] = found(args.studies)
    args.target.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
