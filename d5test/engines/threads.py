"""Ranks that are threads of this process, on the process group that PyTorch's own tests use.

All tensors of a collective are at hand there, and rank 0's thread does it for all. So an engine is
judged without MPI, on any number of ranks. What travels is not seen.

Requirements: a rank that raises, or that is not done in time, frees the others; the process has
its own world again afterwards.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TypeVar

import torch
import torch.distributed as dist

from d5test.backends.base import Unsupported
from d5test.distributed.meshes import forget_meshes
from d5test.engines.engine import Engine, World
from d5test.engines.judging import Subject
from d5test.engines.trained import Trained, trained
from d5test.outcome.fault import Fault

T = TypeVar("T")
LIMIT = 60.0
"""Seconds that all ranks have together."""
GRACE = 10.0
"""Seconds for those that have been freed."""


def trained_on_threads(make: Callable[[], Engine], subject: Subject) -> Sequence[Trained]:
    """Have an engine train on as many ranks as its training has. Raises the `Fault` of one."""
    size, mesh = subject.training.ranks, subject.mesh

    def train(rank: int) -> Trained:
        try:
            return trained(make(), subject.training, World(rank, size, mesh), subject.resumed)
        except (Unsupported, Fault):
            raise
        except Exception as error:
            if fault := subject.exception(error, rank):
                raise fault from None
            raise

    try:
        return together(size, train)
    except TimeoutError as error:
        raise subject.fault(
            "hang", "not all ranks came to an end", {"stuck": str(error)}
        ) from None


def together(size: int, body: Callable[[int], T]) -> list[T]:
    """What each rank returns. Raises what the first one raised, or `TimeoutError`."""
    from torch.testing._internal.distributed.multi_threaded_pg import ProcessLocalGroup

    results: dict[int, T] = {}
    errors: list[BaseException] = []
    store = dist.HashStore()

    def run(rank: int) -> None:
        try:
            dist.init_process_group("threaded", rank=rank, world_size=size, store=store)
            try:
                results[rank] = body(rank)
            finally:
                dist.destroy_process_group()
        except SystemExit:  # freed
            pass
        except BaseException as error:  # noqa: BLE001 (raised below)
            errors.append(error)
            ProcessLocalGroup.exception_handle(error)

    with _world_of_threads():
        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
        for thread in threads:
            thread.start()
        _join(threads, LIMIT)
        stuck = {rank: where(each) for rank, each in enumerate(threads) if each.is_alive()}
        if stuck:
            ProcessLocalGroup.exception_handle(None)
            _join(threads, GRACE)
    if errors:
        raise errors[0]
    if stuck:
        raise TimeoutError("; ".join(f"rank {rank} at {line}" for rank, line in stuck.items()))
    return [results[rank] for rank in range(size)]


def _join(threads: Sequence[threading.Thread], seconds: float) -> None:
    end = monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - monotonic()))


def where(thread: threading.Thread) -> str:
    """The line at which a thread is, in words."""
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 (there is no other way)
    if frame is None:
        return "its end"
    last = traceback.extract_stack(frame)[-1]
    return f"{last.filename}:{last.lineno} in {last.name}"


@contextmanager
def _world_of_threads() -> Iterator[None]:
    """Within: each thread is a rank, with process groups of its own."""
    from torch.testing._internal.distributed import multi_threaded_pg

    multi_threaded_pg.ProcessLocalGroup.reset()
    isolated = torch._C._distributed_c10d._set_thread_isolation_mode  # noqa: SLF001
    isolated(True)
    multi_threaded_pg._install_threaded_pg()  # noqa: SLF001 (PyTorch has no public name of it)
    try:
        yield
    finally:
        multi_threaded_pg._uninstall_threaded_pg()  # noqa: SLF001
        isolated(False)
        forget_meshes()
