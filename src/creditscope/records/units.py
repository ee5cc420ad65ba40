"""The units of the logged gradient norms, and the one conversion to per-sample, sum-reduced norms."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from creditscope.records.spec_parts import ProbeSpec

PUBLISHED_PROBE_SIZE = 128
PER_SAMPLE = "per sample, sum-reduced"


@dataclass(frozen=True)
class Units:
    """The units in which a log holds the norms of its reference gradients; by default those of our own logs.

    Args:
        factor: Turns a logged norm into the norm of a per-sample, sum-reduced gradient.
        known: Whether the log states its units.
        probe_size: N, the size of the probe batch over which a mean-reduced gradient is taken.
    """

    factor: float = 1.0
    known: bool = True
    probe_size: int = PUBLISHED_PROBE_SIZE

    @classmethod
    def stated(cls, reduction: str | None, batch: int | None) -> "Units":
        """The units that a log states; the published ones, a mean over 128, where it states too little.

        Args:
            reduction: How the gradient of a probe batch was reduced: ``sum``, ``mean``, or None.
            batch: The size of that batch.
        """
        size = batch or PUBLISHED_PROBE_SIZE
        if reduction == "sum":
            return cls(1.0, True, size)
        if reduction == "mean" and batch is not None:
            return cls(float(batch), True, size)
        return cls(float(PUBLISHED_PROBE_SIZE), False, size)

    @classmethod
    def of(cls, probe: ProbeSpec | None, *, imported: bool) -> "Units":
        """The units of a log.

        Args:
            probe: What its spec says of the probes.
            imported: Whether the importer has multiplied norms without units by the published probe size.
        """
        units = cls.stated(probe.reduction, probe.batch) if probe is not None else cls.stated(None, None)
        return replace(units, factor=1.0) if imported and not units.known else units

    def per_sample(self, norms: Sequence[float | None]) -> list[float | None]:
        """Logged norms as norms of per-sample, sum-reduced gradients.

        Args:
            norms: As the log holds them.
        """
        return [None if norm is None else norm * self.factor for norm in norms]
