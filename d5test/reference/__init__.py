"""References: what frameworks are compared with, as NumPy that reads like the formula.

operators    ONNX's operators, forward beside backward; `node`: from and to ONNX nodes
optimizers   update rules; `steps`: one step as an operator
collectives  allreduce as schedules
formulas     other formulas than ONNX's, as frameworks are known to compute them
stable       elementary functions in forms that neither cancel nor overflow on the way
"""
