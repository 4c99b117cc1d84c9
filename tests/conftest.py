"""Tests read the published data from a folder beside the repository where there is one, and download it elsewhere."""

import os
from pathlib import Path

_beside = Path(__file__).resolve().parents[2] / "shared" / "data"
if "CODESGC_DATA" not in os.environ and _beside.is_dir():
    os.environ["CODESGC_DATA"] = str(_beside)
