"""A decoder in the manner of GPT-2: Radford et al., Language Models are Unsupervised Multitask
Learners (2019), section 2.3; attention written out, as exporters write it."""

import math

import numpy as np

from d5test.networks.graph import Value
from d5test.networks.network import Network
from d5test.networks.zoo.built import Draft
from d5test.reference.operators.elementwise import Add, Gelu, Mul
from d5test.reference.operators.linear import MatMul
from d5test.reference.operators.movement import Gather, Reshape, Split, Transpose, Where
from d5test.reference.operators.normalisation import LayerNormalization
from d5test.reference.operators.reductions import Softmax


def gpt2(
    layers: int = 2,
    width: int = 48,
    heads: int = 4,
    vocabulary: int = 101,
    length: int = 11,
    seed: int = 0,
) -> Network:
    """tokens (n, length) to scores (n, length, vocabulary), normalised before each part.

    The scores' matrix is the embedding's, so that its gradient comes from both ends.
    """
    tokens = Value("int64", ("n", length))
    draft = Draft("gpt2", seed, tokens=tokens, labels=tokens)
    add, matmul = Add(), MatMul()
    words = draft.normal("words", (vocabulary, width), 0.2)
    h = draft.add("embedded", Gather(), words, "tokens")
    h = draft.add("placed", add, h, draft.normal("places", (length, width), 0.2))
    part = _Part(draft, width, heads, length)
    for layer in range(layers):
        h = draft.add(f"{layer}_after_attention", add, h, part.attention(f"{layer}_attention", h))
        h = draft.add(f"{layer}_after_mlp", add, h, part.mlp(f"{layer}_mlp", h))
    h = part.normalised("last", h)
    across = draft.add("words_across", Transpose(perm=(1, 0)), words)
    scores = draft.add("scores", matmul, h, across)
    classes = draft.add("classes", Transpose(perm=(0, 2, 1)), scores)
    return draft.finished(scores, draft.loss(classes, "labels"))


class _Part:
    """The parts of a layer, all of one width."""

    def __init__(self, draft: Draft, width: int, heads: int, length: int) -> None:
        self.draft, self.width, self.heads = draft, width, heads
        size = width // heads
        self.split = draft.array("split", np.array([0, 0, heads, size]))
        self.joined = draft.array("joined", np.array([0, 0, width]))
        self.seen = draft.array("seen", np.tri(length, dtype=bool))
        self.never = draft.array("never", np.float64(-1e4))
        self.scale = draft.array("scale", np.float64(1 / math.sqrt(size)))

    def attention(self, name: str, x: str) -> str:
        """Each token looks at itself and those before it."""
        draft, matmul = self.draft, MatMul()
        h = self.projected(f"{name}_qkv", self.normalised(name, x), 3 * self.width)
        split = Split(axis=2, num_outputs=3)
        q, k, v = draft.add_several(f"{name}_split", split, h, outputs=3)
        q = self.turned(f"{name}_q", q, (0, 2, 1, 3))
        k = self.turned(f"{name}_k", k, (0, 2, 3, 1))
        v = self.turned(f"{name}_v", v, (0, 2, 1, 3))
        h = draft.add(f"{name}_products", matmul, q, k)
        h = draft.add(f"{name}_scaled", Mul(), h, self.scale)
        h = draft.add(f"{name}_masked", Where(), self.seen, h, self.never)
        h = draft.add(f"{name}_shares", Softmax(axis=-1), h)
        h = draft.add(f"{name}_mixed", matmul, h, v)
        h = draft.add(f"{name}_back", Transpose(perm=(0, 2, 1, 3)), h)
        h = draft.add(f"{name}_joined", Reshape(), h, self.joined)
        return self.projected(f"{name}_out", h, self.width)

    def turned(self, name: str, x: str, perm: tuple[int, ...]) -> str:
        """(n, length, width) with an axis of heads, in the order `perm`."""
        h = self.draft.add(f"{name}_heads", Reshape(), x, self.split)
        return self.draft.add(name, Transpose(perm=perm), h)

    def mlp(self, name: str, x: str) -> str:
        """To four times the width and back."""
        h = self.projected(f"{name}_up", self.normalised(name, x), 4 * self.width)
        h = self.draft.add(f"{name}_gelu", Gelu(approximate="tanh"), h)
        return self.projected(f"{name}_down", h, self.width, 4 * self.width)

    def normalised(self, name: str, x: str) -> str:
        """Layer normalisation, with scales near 1 and shifts near 0."""
        scale, shift = self.draft.scale_and_shift(f"{name}_norm", self.width)
        return self.draft.add(f"{name}_norm", LayerNormalization(), x, scale, shift)

    def projected(self, name: str, x: str, to: int, of: int | None = None) -> str:
        """x w + b along the last axis."""
        of = of or self.width
        w = self.draft.normal(f"{name}_w", (of, to), 1 / math.sqrt(of))
        h = self.draft.add(f"{name}_product", MatMul(), x, w)
        return self.draft.add(name, Add(), h, self.draft.normal(f"{name}_b", (to,), 0.1))
