"""What supervises a backend: the seam between the judge and the judged.

registry    which backend is meant by a name
client      `BackendClient`, what d5test asks; `WorkerClient` asks a worker process
inprocess   `InProcessClient` asks the same in this process, for debuggers
messages    what is said and answered: feeds, results, facts, crashes and hangs
process     the worker started, asked, restarted and ended, by a `launch`
deadline    how long an answer is awaited; `log` keeps what the process printed
"""
