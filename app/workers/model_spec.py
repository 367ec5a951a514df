"""What an engine's workers load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.graphs import Precision, Variant
from app.runtime.device import Device
from app.runtime.interface import Limits, Runner
from app.runtime.kernels import usable_kernels


@dataclass(frozen=True)
class ModelSpec:
    """A variant of a bundle's folder, which was checked, on a device that was chosen.

    num_threads: of all workers together. num_workers: of the engine. log_level: as the server's.
    """

    folder: str
    precision: Precision
    variant: Variant
    limits: Limits
    device: Device
    kernels: Literal["auto", "native", "standard"]
    num_threads: int
    num_workers: int
    log_level: str

    @property
    def is_native(self) -> bool:
        """Whether the native kernels run it: then a runner has no threads until they are started."""
        is_usable = self.device == "cpu" and "native" in usable_kernels(self.variant)
        return is_usable and self.kernels != "standard"

    def load(self, *, starts_threads: bool = True) -> Runner:
        """As `load_variant`. Raises BundleError, SettingsError."""
        from app.runtime.ort_runner import RunnerConfig, load_variant

        # ONNX Runtime's own threads are as many at all times: each worker gets its part.
        return load_variant(
            Path(self.folder),
            RunnerConfig(self.precision, self.variant, self.limits, starts_threads=starts_threads),
            device=self.device,
            kernels=self.kernels,
            num_threads=self.num_threads if self.is_native else max(1, self.num_threads // self.num_workers),
        )
