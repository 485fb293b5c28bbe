"""All rows of PyTorch."""

from __future__ import annotations

from d5test.backends.base import Table
from d5test.backends.torch.activations import rows as activations
from d5test.backends.torch.attention import rows as attention
from d5test.backends.torch.convolution import rows as convolution
from d5test.backends.torch.elementwise import rows as elementwise
from d5test.backends.torch.linear import rows as linear
from d5test.backends.torch.losses import rows as losses
from d5test.backends.torch.movement import rows as movement
from d5test.backends.torch.normalisation import rows as normalisation
from d5test.backends.torch.optimizers import rows as optimizers
from d5test.backends.torch.padding import rows as padding
from d5test.backends.torch.pooling import rows as pooling
from d5test.backends.torch.recurrent import rows as recurrent
from d5test.backends.torch.reductions import rows as reductions
from d5test.backends.torch.softmax import rows as softmax
from d5test.backends.torch.views import rows as views

rows = Table(
    activations
    | attention
    | convolution
    | elementwise
    | linear
    | losses
    | movement
    | normalisation
    | optimizers
    | padding
    | pooling
    | recurrent
    | reductions
    | softmax
    | views
)
