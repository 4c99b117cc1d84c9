"""codesgc: spectral graph convolutions as decompositions of one coefficient tensor.

    Y = sum_k P_k(S) X W_k

Everything here is a choice of a graph matrix S (`MATRICES`), a basis P_k (`BASES`), a factorisation of the coefficients
W (`DECOMPOSITIONS`), and what stands around the convolution; `MODELS` names the choices that have been published.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from codesgc.bases import BASES, Basis
    from codesgc.conv import SpectralConv
    from codesgc.datasets import DATASETS, load_dataset
    from codesgc.decompositions import DECOMPOSITIONS, Decomposition
    from codesgc.errors import InputError
    from codesgc.graph import Graph
    from codesgc.matrices import MATRICES, Matrix, SymmetricMatrix
    from codesgc.models import SpectralModel, build_model
    from codesgc.spectrum import SpectralDensity, spectral_density
    from codesgc.training import Result, train
    from codesgc.zoo import MODELS, Config, preset

_HOME = {
    "BASES": "bases",
    "Basis": "bases",
    "Config": "zoo",
    "DATASETS": "datasets",
    "DECOMPOSITIONS": "decompositions",
    "Decomposition": "decompositions",
    "Graph": "graph",
    "InputError": "errors",
    "MATRICES": "matrices",
    "MODELS": "zoo",
    "Matrix": "matrices",
    "Result": "training",
    "SpectralConv": "conv",
    "SpectralDensity": "spectrum",
    "SpectralModel": "models",
    "SymmetricMatrix": "matrices",
    "build_model": "models",
    "load_dataset": "datasets",
    "preset": "zoo",
    "spectral_density": "spectrum",
    "train": "training",
}

__all__ = [
    "BASES",
    "DATASETS",
    "DECOMPOSITIONS",
    "MATRICES",
    "MODELS",
    "Basis",
    "Config",
    "Decomposition",
    "Graph",
    "InputError",
    "Matrix",
    "Result",
    "SpectralConv",
    "SpectralDensity",
    "SpectralModel",
    "SymmetricMatrix",
    "__version__",
    "build_model",
    "engine_name",
    "load_dataset",
    "preset",
    "spectral_density",
    "train",
]


def engine_name() -> str:
    """Which engine multiplies: the native kernels with their instruction set, or the portable one and why."""
    if os.environ.get("CODESGC_ENGINE") == "portable":
        return "portable engine (CODESGC_ENGINE=portable)"
    try:
        kernels = import_module("codesgc._native")
    except ImportError:
        return "portable engine (no native kernels: there was no C++ compiler at installation)"
    return f"native kernels ({kernels.instruction_set()})"


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that starting up does not wait for torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'codesgc' has no attribute {name!r}")
    value = getattr(import_module(f"codesgc.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
