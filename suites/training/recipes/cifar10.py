"""CIFAR-10 with ResNet-44: 93% of the test images right, as in the slides of Deep500.

He et al., arXiv 1512.03385, section 4.2. The files of CIFAR-10's binary version lie in
`cifar-10-batches-bin` in the working directory. Runs for hours without a GPU.
"""

from d5test.networks.zoo.resnet import cifar
from d5test.reference.optimizers import Momentum
from d5test.training.history import TEST_ACCURACY
from d5test.training.recipe import run_recipe
from d5test.training.samplers import ShuffleSampler

FIXED = {
    "model": cifar,
    "model_kwargs": {"depth": 44},
    "dataset": "cifar10",
    "train_sampler": ShuffleSampler,
    "epochs": 180,
    "seeds": (1,),
}

MUTABLE = {
    "batch_size": 128,
    "backend": "torch",
    "optimizer": Momentum,
    "optimizer_kwargs": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0001},
}

METRICS = [
    (TEST_ACCURACY, 0.93),
]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
