"""The log of training: a CSV file and TensorBoard events."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

LOG = "train.csv"
FIELDS = (
    "step",
    "epoch",
    "train_loss",
    "dev_loss",
    "dev_bleu",
    "learning_rate",
    "target_tokens_per_s",
    "elapsed_s",
)


class TrainingLog:
    """Appends rows to train.csv and to TensorBoard's events."""

    def __init__(self, run: Path, more_fields: Sequence[str] = (), *, is_new: bool = False) -> None:
        """more_fields: columns after FIELDS. A file that has columns keeps them. TensorBoard gets all fields.

        is_new: whether the run begins. Rows of a run that was killed before its first checkpoint are then dropped.
        """
        from torch.utils.tensorboard import SummaryWriter

        run.mkdir(parents=True, exist_ok=True)
        self.path = run / LOG
        is_new = is_new or not has_content(self.path)
        fields = [*FIELDS, *more_fields] if is_new else fields_of(self.path)
        self._file = self.path.open("w" if is_new else "a", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._file, fields, extrasaction="ignore")
        if is_new:
            self._writer.writeheader()
        self._events = SummaryWriter(str(run / "tensorboard"))

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._events.close()

    def write(self, row: dict[str, float]) -> None:
        """Write one row with `step` and any other fields. Losses are in nats per subword."""
        self._writer.writerow(row)
        self._file.flush()
        for name, value in row.items():
            if name != "step":
                self._events.add_scalar(name, value, int(row["step"]))


def has_content(path: Path) -> bool:
    """Whether the file exists and is not empty. A run that is killed at its start may leave an empty one."""
    return path.exists() and path.stat().st_size > 0


def fields_of(path: Path) -> list[str]:
    """The columns of a train.csv that is not empty."""
    with path.open(newline="", encoding="utf-8") as file:
        return next(csv.reader(file))


def drop_rows_after(path: Path, step: int) -> None:
    """Remove the rows after a step. A resumed run writes them again."""
    if not has_content(path):
        return
    fields = fields_of(path)
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if int(float(row["step"])) <= step]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        writer.writerows(rows)
