"""A recipe of seconds: a perceptron on synthetic images."""

from d5test.networks.zoo.small import mlp
from d5test.reference.optimizers import Momentum
from d5test.training.history import TEST_ACCURACY
from d5test.training.samplers import ShuffleSampler

FIXED = {
    "model": mlp,
    "model_kwargs": {"sizes": (16, 7, 4)},
    "dataset": "synthetic",
    "dataset_kwargs": {"train": 337, "test": 97, "shape": (1, 4, 4), "seed": 5},
    "train_sampler": ShuffleSampler,
    "epochs": 3,
    "seeds": (1, 2),
}
MUTABLE = {
    "batch_size": 30,
    "backend": "numpy",
    "optimizer": Momentum,
    "optimizer_kwargs": {"lr": 0.125, "momentum": 0.75},
}
METRICS = [(TEST_ACCURACY, 0.9)]
