"""Training by the paper's protocol."""

from codesgc.training.capacity import population_size
from codesgc.training.population import Done, Job, Run, Slot, train_jobs
from codesgc.training.protocol import PROTOCOLS, Result, bootstrap_interval, train
from codesgc.training.splits import Split, random_split

__all__ = [
    "PROTOCOLS",
    "Done",
    "Job",
    "Result",
    "Run",
    "Slot",
    "Split",
    "bootstrap_interval",
    "population_size",
    "random_split",
    "train",
    "train_jobs",
]
