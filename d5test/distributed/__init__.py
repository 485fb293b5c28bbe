"""Ranks that run schedules, and what is judged of them: collectives, distributed optimizers.

traffic     what a rank has sent: messages and bytes
virtual     all ranks in one process; the order of delivery is drawn
mpi, gloo   one rank a process, under mpirun
allreduce   the operator: the sum of all ranks' contributions, at every rank
checks      what must hold of an allreduce, case by case
"""
