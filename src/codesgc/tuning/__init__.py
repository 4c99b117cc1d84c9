"""Hyper-parameter search on the population trainer; Optuna is the optimiser, and its storage the only coordination."""

from codesgc.tuning.spaces import AUTO, Choices, Range, Space, make_space

__all__ = ["AUTO", "Choices", "Range", "Space", "make_space"]
