"""Forms of tensors that are made of shapes and numbers: none."""

from d5test.backends.base import Forms

forms = Forms()
