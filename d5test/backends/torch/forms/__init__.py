"""How else PyTorch's users write an operator's call: other functions, modules, methods, buffers.

The modules have the forms, one a family; `calls` what they share; `transformed` those of all rows.
"""

from d5test.backends.base import Forms, Table
from d5test.backends.torch.forms.transformed import of_rows

FAMILIES = (
    "elementwise",
    "linear",
    "movement",
    "normalisation",
    "recurrent",
    "reductions",
    "windows",
)
forms = Forms.of(__name__, FAMILIES).merged(of_rows(Table.of("d5test.backends.torch", FAMILIES)))
