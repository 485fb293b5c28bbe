"""Forms of what is chosen by values."""

import torch
from torch import Tensor

from d5test.backends.base import UNDERIVED, Forms

forms = Forms()
forms.same(
    "NonZero",
    {
        "torch.argwhere": lambda x: torch.argwhere(x).T,
        "Tensor.nonzero": lambda x: x.nonzero().T,
        "torch.nonzero(as_tuple=True)": lambda x: torch.stack(torch.nonzero(x, as_tuple=True)),
        "torch.where(condition)": lambda x: torch.stack(torch.where(x != 0)),
    },
    gradient=UNDERIVED,
)
forms.same(
    "Unique",
    {
        "Tensor.unique": Tensor.unique,
        "torch.unique_consecutive(torch.sort)": lambda x: torch.unique_consecutive(
            torch.sort(x.flatten())[0]
        ),
    },
    gradient=UNDERIVED,
    outputs=1,
    attributes={"axis": (None,), "sorted": (1,)},
)
