"""Data-parallel training by `torchrun`. Every process has the whole model and a share of each update's batches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType

import torch
import torch.distributed as dist
from torch import Tensor

# The longest time for which a process waits for another one. The others wait while the first one encodes the corpus or
# evaluates. If it is shorter than this work, the run fails. PyTorch's defaults are 10 minutes (NCCL) and 30 minutes
# (gloo). If it is longer, a run with a process that hangs fails later. `torchrun` notices a process that ends.
TIMEOUT = timedelta(days=1)


class ParallelError(ValueError):
    """The options do not allow this number of processes, or another process has failed."""


class ProcessGroup:
    """The processes of one run, or a single process if `torchrun` did not start it.

    rank: this process's number, from 0. size: the number of processes.
    """

    def __init__(self, device: str = "cpu") -> None:
        """Read RANK and WORLD_SIZE, which `torchrun` sets. device: `cuda` or `cpu`, where the model is."""
        self._is_on_gpu = device == "cuda"
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))

    def __enter__(self) -> ProcessGroup:
        """Join the other processes: by NCCL if the model is on a GPU and PyTorch has NCCL, else by gloo.

        NCCL needs a GPU for each process.
        """
        if self.size > 1:
            if self._is_on_gpu:
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            backend = "nccl" if self._is_on_gpu and dist.is_nccl_available() else "gloo"
            dist.init_process_group(backend, timeout=TIMEOUT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the group."""
        if self.size > 1:
            dist.destroy_process_group()

    @property
    def is_first(self) -> bool:
        """Whether this process writes checkpoints and logs."""
        return self.rank == 0

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """Run the body in the first process, then in the others.

        Raises ParallelError in the others if the body fails in the first process.
        """
        device = torch.device("cuda" if self._is_on_gpu else "cpu")
        if not self.is_first:
            if self.any(False, device):
                raise ParallelError("the first process of the run has failed")
            yield
            return
        has_failed = True
        try:
            yield
            has_failed = False
        finally:
            self.any(has_failed, device)

    def check(self, accumulate: int) -> None:
        """Raise ParallelError if the batches of an update do not divide evenly among the processes."""
        if accumulate % self.size:
            raise ParallelError(
                f"accumulate is {accumulate}: with {self.size} processes it must be a multiple of {self.size}"
            )

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace each gradient by its sum over the processes, in one transfer.

        A parameter must have a gradient in all processes or in none.
        """
        if self.size == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        joined = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(joined)
        parts = torch.split(joined, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def sum(self, value: Tensor) -> Tensor:
        """The sum of every process's value. Every process must call it."""
        if self.size > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def mean(self, value: float, device: torch.device) -> float:
        """The mean of every process's value. Every process must call it."""
        if self.size == 1:
            return value
        return float(self.sum(torch.tensor(value, dtype=torch.float64, device=device))) / self.size

    def any(self, value: bool, device: torch.device) -> bool:
        """Whether the value is True in any process. Every process must call it."""
        return self.mean(float(value), device) > 0.0
