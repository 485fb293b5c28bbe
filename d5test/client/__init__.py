"""What supervises a backend: the seam between the judge and the judged.

registry    which backend is meant by a name
client      `BackendClient`, what d5test asks; `WorkerClient` asks a worker process,
            `InProcessClient` the same in this process, for debuggers
messages    what is said and answered: feeds, results, facts, crashes and hangs
process     the worker started, asked, restarted and ended, and what it printed
deadline    how long an answer is awaited
history     the calls that a worker has answered since it was fresh
"""
