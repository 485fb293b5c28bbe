"""A backend over NumPy that is right, small, and needs nothing: what the wrong ones start from."""

from typing import Any

import numpy as np

from d5test.backends.base import Backend, Row, Table, planned

rows = Table()


class Pulled(np.ndarray):
    """An array that remembers its gradients: what `vjp` of a product needs."""

    parts: Any = ()


@rows.native("Mul")
def mul(op: Any, x: Any, y: Any) -> Any:
    product = np.asarray(x * y).view(Pulled)
    product.parts = ((x, y), (y, x))
    return product


@rows.native("Scale")
def scale(op: Any, x: Any) -> Any:
    return np.asarray(x * op.factor)


@rows.native("Halves")
def halves(op: Any, x: Any) -> Any:
    """Two views of the input."""
    return tuple(np.split(x, 2))


@planned
def take(op: Any, x: Any, indices: Any, axis: Any) -> Any:
    """It reads the values of `axis`, and not those of `indices`."""
    along = int(axis)
    return lambda x, indices, axis: np.take(x, indices, along)


rows["Take"] = Row(take, values=(2,))
rows["UndeclaredTake"] = Row(take)


class Tiny(Backend):
    framework = "numpy"
    rows = rows
    mutable = True

    @property
    def version(self) -> str:
        return np.__version__

    def put(self, array: Any, dtype: str, layout: str = "contiguous") -> Any:
        if dtype == "bfloat16":
            raise TypeError("NumPy has no bfloat16")
        return array  # adopted, as frameworks do that share memory with NumPy

    def refill(self, tensor: Any, array: Any, dtype: str) -> None:
        tensor[...] = array

    def get(self, tensor: Any) -> tuple[Any, str]:
        return np.array(tensor), tensor.dtype.name

    def wait(self, tensors: Any) -> None:
        for tensor in tensors:
            assert isinstance(tensor, np.ndarray)

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        y = function(*inputs)
        found = []
        for i in wanted:
            terms = [grads[0] * other for x, other in y.parts if x is inputs[i]]
            found.append(sum(terms[1:], terms[0]))
        return (y,), found


class TinyCompiled(Tiny):
    """A mode that compiles each function for each shapes; its count survives a reset, as jax's."""

    mode = "compiled"
    _count = 0

    def compile(self, function: Any) -> Any:
        shapes: set[Any] = set()

        def compiled(*inputs: Any) -> Any:
            now = tuple(x.shape for x in inputs)
            self._count += now not in shapes
            shapes.add(now)
            return function(*inputs)

        return compiled

    def compilations(self) -> int:
        return self._count


def doubled(backend: Any, x: Any, name: str) -> Any:
    """What is invoked beside a backend: NumPy in, NumPy out."""
    return {name: backend.get(backend.put(2 * x.array, x.dtype))[0], "self": backend.framework}
