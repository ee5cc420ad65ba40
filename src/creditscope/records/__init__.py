"""The record: what a run is and what was measured, as typed rows in one JSONL file a run. No torch here."""

from creditscope.records.files import write_atomic
from creditscope.records.log import LogWriter, RunLog
from creditscope.records.method import Method, parse_method
from creditscope.records.rows import EndRow, EpochRow, HeaderRow, ProbeRow
from creditscope.records.rule_card import RuleCard, Sketch
from creditscope.records.spec import RunSpec, digest, engine_spec
from creditscope.records.spec_parts import DataSpec, FeedbackSpec, OptimiserSpec, ProbeSpec, Tuning

__all__ = [
    "DataSpec",
    "EndRow",
    "EpochRow",
    "FeedbackSpec",
    "HeaderRow",
    "LogWriter",
    "Method",
    "OptimiserSpec",
    "ProbeRow",
    "ProbeSpec",
    "RuleCard",
    "RunLog",
    "RunSpec",
    "Sketch",
    "Tuning",
    "digest",
    "engine_spec",
    "parse_method",
    "write_atomic",
]
