"""Level 2: training. Optimizers judged, data, the trainer, and recipes.

step         one step of a framework's optimizer against the reference's bars
trajectory   a hundred steps, against an ensemble of noisy references
variants     what frameworks' optimizers document to do differently
"""
