"""The models of the paper as rows of choices, their published settings, and the paper's numbers; free of torch."""

from codesgc.zoo.config import Config
from codesgc.zoo.models import MODELS, find_model
from codesgc.zoo.published import paper_value, preset

__all__ = ["MODELS", "Config", "find_model", "paper_value", "preset"]
