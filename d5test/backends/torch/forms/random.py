"""Other calls that draw by chance: none is judged, for they have no value to compare with."""

from d5test.backends.base import Forms

forms = Forms()
