"""Handwritten digits with ResNet-8: 97% of the test images right within two minutes on two cores.

The digits of scikit-learn; from each of three seeds.
"""

from d5test.networks.zoo.resnet import cifar
from d5test.reference.optimizers import Momentum
from d5test.training.history import TEST_ACCURACY, TRAINING_TIME
from d5test.training.recipe import run_recipe
from d5test.training.samplers import ShuffleSampler

FIXED = {
    "model": cifar,
    "model_kwargs": {"depth": 8, "channels": 1},
    "dataset": "digits",
    "train_sampler": ShuffleSampler,
    "epochs": 5,
    "seeds": (1, 2, 3),
}

MUTABLE = {
    "batch_size": 64,
    "backend": "torch",
    "optimizer": Momentum,
    "optimizer_kwargs": {"lr": 0.1, "momentum": 0.9},
}

METRICS = [
    (TEST_ACCURACY, 0.97),
    (TRAINING_TIME, 120.0),
]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
