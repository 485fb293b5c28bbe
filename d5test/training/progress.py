"""A progress bar for a training run, a listener of the trainer."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from d5test.training.trainer import Event


class ProgressBar:
    """The steps of each epoch, the loss, and the test accuracy so far.

    >>> with ProgressBar() as bar:
    ...     Trainer(session, dataset, sampler, listeners=[bar]).run(epochs=5)
    """

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.4f}  tested {task.fields[tested]:.2%}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task("", total=None, loss=float("nan"), tested=0.0)
        self._epochs = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        """Move the bar."""
        task, progress = self._task, self._progress
        if event.what == "run":
            self._epochs = int(event.value)
        elif event.what == "epoch":
            name = f"epoch {event.epoch + 1} of {self._epochs}"
            progress.update(task, description=name, total=int(event.value), completed=0)
        elif event.what == "step":
            progress.update(task, advance=1, loss=event.value)
        elif event.what == "tested":
            progress.update(task, tested=event.value)
