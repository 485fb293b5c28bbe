"""`mpirun -n 4 python -m tests.engines.judged_under_mpi planted Ddp:mlp-sgd Ddp:mlp-sgd:dp4 ...`.

A second mesh is that on which a checkpoint is read.

Judges engines of modules beside this one, whose names are separated by commas, or torch's own, in
float32. Rank 0 prints a line of JSON for each: its name, and its distance or the kind, headline
and details of its fault.
"""

import json
import sys
from importlib import import_module
from typing import Any

from mpi4py import MPI

from d5test.distributed.gloo import joined
from d5test.distributed.guarded import Guarded, Notices
from d5test.engines import data_parallel, model_parallel, sequence_parallel
from d5test.engines.bars import expected
from d5test.engines.cases import CASES
from d5test.engines.catalogue import mesh_of
from d5test.engines.engine import World
from d5test.engines.judging import Subject, judge, with_drops
from d5test.engines.trained import trained
from d5test.engines.training import Training
from d5test.outcome.fault import Fault

MODULES = (
    *(import_module(f"tests.engines.{name}") for name in sys.argv[1].split(",")),
    data_parallel,
    model_parallel,
    sequence_parallel,
)
# ranks share cores, as those of a suite do: one that waits leaves its core to the others
everyone, known = MPI.COMM_WORLD, {}
comm = Guarded(everyone.Dup(), Notices(everyone.Dup(), crowded=True))
for word in sys.argv[2:]:
    name, case, mesh_given, resumed_given, *_ = (*word.split(":"), "", "")
    engine = next(vars(where)[name] for where in MODULES if name in vars(where))()
    mesh = mesh_of(mesh_given) or {engine.axes[-1]: comm.size}
    resumed = mesh_of(resumed_given) or {engine.axes[0]: comm.size}
    training, world = (
        Training.of(CASES[case], "float32", comm.size, engine),
        World(comm.rank, comm.size, mesh),
    )
    with joined(comm):
        ranks = comm.allgather(trained(engine, training, world, resumed))
    if training.case.model == "dropout":
        training = with_drops(training, ranks)
    key = training, engine.rounding
    if key not in known:
        known[key] = expected(training, engine.rounding, comm)
        assert not known[key].blind(comm)
    if comm.rank:
        continue
    said: dict[str, Any] = {"asked": word}
    try:
        subject = Subject(name, name, engine.version, training, mesh, resumed)
        said["distance"] = judge(subject, known[key], ranks)
    except Fault as fault:
        said |= {"kind": fault.kind, "headline": fault.headline, "details": fault.details}
    print(f"\n{json.dumps(said)}", flush=True)  # what gloo prints of itself ends in no line
