"""What runs beside the framework, in the process that is judged. NumPy and the framework only.

worker      the process: imports a backend, forks, answers until its socket is closed
wire        messages on that socket, for both sides
service     the requests, by name; a reproducer, run where the framework is imported already
execution   operators run, with `bound` rows; `facts` about the backend are probed
program     networks, `programs` by number, those of runtimes that read ONNX too, `training`
timing      rounds of calls; `machine`: the heap of the process, caches, memory and pace
"""
