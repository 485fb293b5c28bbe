"""What runs beside the framework, in the process that is judged. NumPy and the framework only.

worker      the process: imports a backend, forks, answers until its socket is closed
wire        messages on that socket, for both sides
service     the requests, by name; it also runs a reproducer in a process that has the framework
execution   operators run, with `bound` rows; `facts` about the backend are probed
program     networks, `programs` by number, those of runtimes that read ONNX too, `training`
timing      rounds of calls; `machine`: the heap of the process, caches, memory and pace
repeated    a call on repeated samples, beyond 2^31 elements
recorder    which functions of its framework a row calls; `offer`: those that the framework has
breakpoints which native functions are entered; `functions`: where they begin
own_code    whether an exception is the backend's own
"""
