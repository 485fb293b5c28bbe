"""How else PyTorch's users write an operator's call: other functions, modules, methods, buffers.

The modules have the forms, one per family; `calls` what they share; `transformed` those of all
rows.
"""

from d5test.backends.base import FAMILIES, Forms, Table
from d5test.backends.torch.forms.transformed import of_rows

OPERATORS = [family for family in FAMILIES if family != "optimizers"]
forms = Forms.of(__name__, OPERATORS).merged(of_rows(Table.of("d5test.backends.torch", OPERATORS)))
