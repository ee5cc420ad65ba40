"""The judge: checks, grades, verdicts. It reads records and never a tensor."""

from creditscope.protocol.audit import Audit, audit
from creditscope.protocol.monitor import Alert, Monitor

__all__ = ["Alert", "Audit", "Monitor", "audit"]
