"""The frameworks under test, each in a process of its own.

Theirs:  `base` says what a backend owes; a module or a package for each framework pays it;
         `worker` is the process that it runs in, `execution`, `timing` and `facts` what is done
         there.
Between: `wire` carries messages, `exchange` says what they hold.
Ours:    `registry` resolves names, `client` asks (its `process` starts, restarts and ends the
         worker), `inprocess` asks without a process, for debuggers.
"""
