"""What runs beside the framework, in the process that is judged. NumPy and the framework only.

worker      the process: imports a backend, forks, answers until its socket is closed
wire        messages on that socket, for both sides
service     the requests, by name
execution   operators run, with `bound` rows; `facts` about the backend are probed
program     networks, `programs` by number, `model` for runtimes that read ONNX, `training`
timing      rounds of calls, `heap` and `pace` of the machine
trial       a reproducer, run where the framework is imported already
"""
