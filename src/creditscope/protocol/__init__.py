"""The judge: checks, grades, verdicts. It reads records and never a tensor."""

from creditscope.protocol.audit import Audit, audit

__all__ = ["Audit", "audit"]
