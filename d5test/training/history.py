"""What a training run measured: by step, by epoch, and where the time went."""

from dataclasses import dataclass, field

from d5test.metric import Metric

TRAINING_ACCURACY = Metric("training accuracy", "1", better="higher")
TEST_ACCURACY = Metric("test accuracy", "1", better="higher")
THROUGHPUT = Metric("training throughput", "sample/s", better="higher")
TIME_TO_ACCURACY = Metric("time to accuracy", "s")
TRAINING_TIME = Metric("training time", "s")


@dataclass
class History:
    """Grows as the run goes on. Times are in seconds.

    losses             mean loss of each step
    training_accuracy  of each epoch, as the samples were met
    test_accuracy      of each evaluation
    tested_at          seconds since the run began at each evaluation, interruptions left out
    spent              seconds by part: `data`, `compute`, `transfer`, `evaluation`, `checkpoint`
    trained            samples that were trained on
    """

    losses: list[float] = field(default_factory=list)
    training_accuracy: list[float] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)
    tested_at: list[float] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)
    trained: int = 0

    def spend(self, part: str, seconds: float) -> None:
        """Count time."""
        self.spent[part] = self.spent.get(part, 0.0) + seconds

    @property
    def elapsed(self) -> float:
        """Seconds that the run has taken so far."""
        return sum(self.spent.values())

    @property
    def final_accuracy(self) -> float:
        """The last test accuracy; NaN before the first evaluation."""
        return self.test_accuracy[-1] if self.test_accuracy else float("nan")

    def time_to(self, accuracy: float) -> float | None:
        """Seconds until the test accuracy was first this high; None if it never was."""
        reached = (
            at
            for at, measured in zip(self.tested_at, self.test_accuracy, strict=True)
            if measured >= accuracy
        )
        return next(reached, None)

    @property
    def throughput(self) -> float:
        """Samples trained on a second of data, transfer and compute."""
        seconds = sum(self.spent.get(part, 0.0) for part in ("data", "transfer", "compute"))
        return self.trained / seconds if seconds else float("nan")
