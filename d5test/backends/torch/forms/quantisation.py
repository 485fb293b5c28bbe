"""Forms of quantisation: none."""

from d5test.backends.base import Forms

forms = Forms()
