"""Tests read the published data from a folder beside the repository where there is one, and download it elsewhere."""

import importlib.util
import os
import signal
import sys
from pathlib import Path

import codesgc

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in what a shell runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

_beside = Path(__file__).resolve().parents[2] / "shared" / "data"
if "CODESGC_DATA" not in os.environ and _beside.is_dir():
    os.environ["CODESGC_DATA"] = str(_beside)

if "CODESGC_NATIVE" in os.environ:  # kernels from another build, as that with sanitizers (make sanitize)
    (_library,) = Path(os.environ["CODESGC_NATIVE"]).glob("_native*.so")
    _spec = importlib.util.spec_from_file_location("codesgc._native", _library)
    assert _spec is not None and _spec.loader is not None
    codesgc._native = sys.modules["codesgc._native"] = importlib.util.module_from_spec(_spec)  # type: ignore[attr-defined]
    _spec.loader.exec_module(codesgc._native)
