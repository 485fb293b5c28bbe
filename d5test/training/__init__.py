"""Level 2: training. Optimizers judged, data, the trainer, and recipes.

step         one step of a framework's optimizer against the reference's bars; the usual mistakes
trajectory   a hundred steps, against an ensemble of noisy references; `course`: where they lead
curve        the first losses of a training run, against an ensemble
datasets     images and labels; `samplers`: which of them make which batch
session      a network in training on a backend; what batch normalisation is tested with
trainer      epochs, events, evaluations, checkpoints; `history`: what they measured
recipe       fixed parts, mutable parts, and the metrics that count as success
"""
