"""Says which model the workers load, and how. The server sends this spec to the fork server as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.graphs import KernelChoice, Precision, Variant
from app.runtime.device import PROVIDERS, Device
from app.runtime.interface import Limits, Runner
from app.runtime.kernels import usable_kernels
from app.runtime.native import usable_targets
from app.runtime.native.cpu import TARGETS


@dataclass(frozen=True)
class ModelSpec:
    """A variant in the folder of a checked bundle, and the device to run it on.

    num_threads: threads of all workers together. log_level: the server's log level.
    has_shortlist: whether native kernels load the bundle's shortlist.
    loads_at_low_priority: whether a fork server loads the model in a thread of a low priority, because other
        models serve.
    """

    folder: str
    precision: Precision
    variant: Variant
    limits: Limits
    device: Device
    kernels: KernelChoice
    num_threads: int
    num_workers: int
    log_level: str
    has_shortlist: bool = False
    loads_at_low_priority: bool = False

    @property
    def is_native(self) -> bool:
        """Whether the native kernels run the variant. The fork server can then load the model before it forks."""
        is_usable = self.device == "cpu" and "native" in usable_kernels(self.variant)
        return is_usable and self.kernels != "standard"

    @property
    def used_kernels(self) -> str:
        """The target of the native kernels that run the variant; `standard` for ONNX Runtime's operators."""
        if not self.is_native:
            return "standard"
        return self.kernels if self.kernels in TARGETS else usable_targets()[0]

    @property
    def provider(self) -> str:
        """ONNX Runtime's execution provider."""
        return PROVIDERS[self.device]

    def load(self, *, starts_threads: bool = True) -> Runner:
        """Load the model. starts_threads: False in a process that will fork. Raises BundleError and SettingsError."""
        from app.runtime.ort_runner import RunnerConfig, load_variant

        # The threads of the native kernels are divided among the busy workers at each call. ONNX Runtime's threads are
        # fixed, so each worker gets its part when it loads.
        return load_variant(
            Path(self.folder),
            RunnerConfig(
                self.precision,
                self.variant,
                self.limits,
                starts_threads=starts_threads,
                has_shortlist=self.has_shortlist,
            ),
            device=self.device,
            kernels=self.kernels,
            num_threads=self.num_threads if self.is_native else max(1, self.num_threads // self.num_workers),
        )
