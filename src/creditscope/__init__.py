"""creditscope: train with backprop-free credit rules, measure what reaches every block, judge the claim.

Public names are resolved when first used, so that reading and judging logs never loads torch.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors see; at run time each name comes when it is asked for
    from creditscope.blocks import Batch as Batch
    from creditscope.blocks import Blocks as Blocks
    from creditscope.blocks import CreditRule as CreditRule
    from creditscope.blocks import FeedbackInit as FeedbackInit
    from creditscope.blocks import FeedbackRule as FeedbackRule
    from creditscope.blocks import Step as Step
    from creditscope.blocks import Task as Task
    from creditscope.data import Dataset as Dataset
    from creditscope.data import load_data as load_data
    from creditscope.data.dataset import Splits as Splits
    from creditscope.data.dataset import make_dataset as make_dataset
    from creditscope.errors import CreditscopeError as CreditscopeError
    from creditscope.execution.local import train as train
    from creditscope.execution.remeasure import probe_checkpoint as probe_checkpoint
    from creditscope.execution.sweep import sweep as sweep
    from creditscope.figures.write import draw_figure as draw_figure
    from creditscope.integrations.sink import log_to as log_to
    from creditscope.plans.specs import specs as specs
    from creditscope.protocol.audit import Audit as Audit
    from creditscope.protocol.audit import audit as audit
    from creditscope.protocol.cells import Cell as Cell
    from creditscope.protocol.check import Check as Check
    from creditscope.protocol.check import Outcome as Outcome
    from creditscope.protocol.checks.point import EpochCheck as EpochCheck
    from creditscope.protocol.checks.point import ProbeCheck as ProbeCheck
    from creditscope.protocol.comparison import compare as compare
    from creditscope.protocol.evidence import Evidence as Evidence
    from creditscope.protocol.evidence import Grade as Grade
    from creditscope.protocol.monitor import Monitor as Monitor
    from creditscope.protocol.presets import Protocol as Protocol
    from creditscope.protocol.presets import protocol_named as protocol_named
    from creditscope.records import RunLog as RunLog
    from creditscope.records import RunSpec as RunSpec
    from creditscope.records import Sketch as Sketch
    from creditscope.records.load import load_logs as load_logs
    from creditscope.report.page import write_report as write_report
    from creditscope.rules.block_rule import BlockRule as BlockRule
    from creditscope.scope.audit_model import audit_model as audit_model
    from creditscope.scope.audit_model import frozen_copy as frozen_copy
    from creditscope.scope.credit import backward_credit as backward_credit
    from creditscope.scope.credit import rule_credit as rule_credit
    from creditscope.scope.identify import identify as identify
    from creditscope.scope.identity import Identity as Identity
    from creditscope.scope.judge import judge as judge
    from creditscope.scope.locality import check_locality as check_locality
    from creditscope.scope.updates import audit_updates as audit_updates
    from creditscope.scope.watch import watch as watch
    from creditscope.studies.explain import explain as explain

    __version__: str

_PUBLIC = {
    "Audit": "creditscope.protocol.audit",
    "Batch": "creditscope.blocks",
    "BlockRule": "creditscope.rules.block_rule",
    "Blocks": "creditscope.blocks",
    "Cell": "creditscope.protocol.cells",
    "Check": "creditscope.protocol.check",
    "CreditRule": "creditscope.blocks",
    "CreditscopeError": "creditscope.errors",
    "Dataset": "creditscope.data",
    "EpochCheck": "creditscope.protocol.checks.point",
    "Evidence": "creditscope.protocol.evidence",
    "FeedbackInit": "creditscope.blocks",
    "FeedbackRule": "creditscope.blocks",
    "Grade": "creditscope.protocol.evidence",
    "Identity": "creditscope.scope.identity",
    "Monitor": "creditscope.protocol.monitor",
    "Outcome": "creditscope.protocol.check",
    "ProbeCheck": "creditscope.protocol.checks.point",
    "Protocol": "creditscope.protocol.presets",
    "RunLog": "creditscope.records",
    "RunSpec": "creditscope.records",
    "Sketch": "creditscope.records",
    "Splits": "creditscope.data.dataset",
    "Step": "creditscope.blocks",
    "Task": "creditscope.blocks",
    "audit": "creditscope.protocol.audit",
    "audit_model": "creditscope.scope.audit_model",
    "audit_updates": "creditscope.scope.updates",
    "backward_credit": "creditscope.scope.credit",
    "check_locality": "creditscope.scope.locality",
    "compare": "creditscope.protocol.comparison",
    "draw_figure": "creditscope.figures.write",
    "explain": "creditscope.studies.explain",
    "frozen_copy": "creditscope.scope.audit_model",
    "identify": "creditscope.scope.identify",
    "judge": "creditscope.scope.judge",
    "load_data": "creditscope.data",
    "load_logs": "creditscope.records.load",
    "log_to": "creditscope.integrations.sink",
    "make_dataset": "creditscope.data.dataset",
    "probe_checkpoint": "creditscope.execution.remeasure",
    "protocol_named": "creditscope.protocol.presets",
    "rule_credit": "creditscope.scope.credit",
    "specs": "creditscope.plans.specs",
    "sweep": "creditscope.execution.sweep",
    "train": "creditscope.execution.local",
    "watch": "creditscope.scope.watch",
    "write_report": "creditscope.report.page",
}
__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        try:
            return version("creditscope")
        except PackageNotFoundError:  # run from a source tree that was not installed
            return "unknown"
    if name not in _PUBLIC:
        raise AttributeError(f"module 'creditscope' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
