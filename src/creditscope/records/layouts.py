"""Foreign logs: the two published JSON layouts, turned into run logs.

``snapshot``: ``{"config": {…}, "bp_log": […], "dfa_log": […]}``, one list of norms per epoch and series.
``penalty``: ``{"log": [{"h_L_norm", "g_2_norm", "acc_eval"}, …], "final_test_acc": …}``, one run a file.
"""

import math
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

from pydantic import ValidationError

from creditscope.errors import BadFile, BadInput
from creditscope.records.foreign import ForeignFile, type_of
from creditscope.records.log import RunLog, explain
from creditscope.records.measured import Gamma, Norms
from creditscope.records.method import Method, literal, parse_method
from creditscope.records.rows import EndRow, EpochRow, HeaderRow
from creditscope.records.spec import RunSpec
from creditscope.records.spec_parts import DataSpec, ProbeSpec
from creditscope.records.units import PUBLISHED_PROBE_SIZE, Units

# Every name a published log uses, by what it means here. The one place that knows foreign names.
ROW_FIELDS: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_norms", "hidden_norms_cls", "residual_norms"),
    "reference": ("bp_grad_norms_per_sample_med", "bp_grad_per_sample_l2_med", "bp_grad_norms"),
    "hidden_last": ("h_L_norm",),
    "reference_2": ("g_2_norm",),
    "accuracy": ("acc_eval", "test_acc"),
    "gamma": ("gamma_dfa",),
}
FILE_FIELDS: dict[str, tuple[str, ...]] = {
    "final_accuracy": ("final_test_acc", "final_acc"),
    "method": ("method", "rule"),
    "seed": ("seed",),
    "penalty": ("penalty", "lam", "lambda"),
    "credit_norm": ("credit_norm",),
    "epochs": ("epochs",),
    "width": ("d_hidden", "width"),
    "depth": ("num_blocks", "depth"),
    "batch": ("batch_size",),
    "probe_size": ("probe_size",),
    "reduction": ("reduction",),
    "classes": ("num_classes", "classes"),
    "terminal_ln": ("terminal_ln",),
    "data": ("dataset", "data"),
}
PENALTY_BLOCKS = 4
_SERIES = re.compile(r"(?P<rule>[A-Za-z][A-Za-z0-9-]*)_log")
_NAME_SEED = re.compile(r"(?:^|[_-])s(?:eed)?(\d{1,9})(?=[_.-]|$)")
_NAME_PENALTY = re.compile(r"(?:^|[_-])(?:lam|pen)(\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?=[_-]|\.json|$)", re.IGNORECASE)
# What a file name may begin with.
_PUBLISHED_RULES = ("bp", "fa", "fa-exact-head", "fa-block", "dfa")
_NAME_RULE = re.compile(r"[a-z]+(?:-[a-z]+)*")
Layout = Literal["snapshot", "penalty"]


def layout_of(content: Any) -> Layout | None:
    """Which published layout a parsed JSON file has; None for neither.

    Args:
        content: The parsed file.
    """
    if not isinstance(content, dict):
        return None
    if "log" in content:
        return "penalty"
    return "snapshot" if any(_SERIES.fullmatch(key) for key in content) else None


def import_logs(name: str, content: Any) -> tuple[RunLog, ...]:
    """Turn a parsed file in a published layout into run logs, one per series.

    Args:
        name: The file's name, without its folder.
        content: The parsed JSON; NaN and infinities allowed where a norm or an accuracy stands.
    """
    layout = layout_of(content)
    if layout is None:
        raise BadFile(
            f"{name}: not a log: wanted a creditscope JSONL log, or JSON with a list under 'log', 'bp_log' or 'dfa_log'"
        )
    file = ForeignFile(name, content)
    if layout == "penalty":
        return (_run(file, "log", None, layout),)
    series = [(match["rule"], key) for key in content if (match := _SERIES.fullmatch(key))]
    return tuple(_run(ForeignFile(name, content), key, rule.lower(), layout) for rule, key in series)


def _run(file: ForeignFile, key: str, series_rule: str | None, layout: Layout) -> RunLog:
    entries = file.content[key]
    if not isinstance(entries, list):
        raise file.bad(key, f"wanted a list of epochs, got {type_of(entries)}")
    if not entries:
        raise file.bad(key, "the list of epochs is empty; nothing to judge")
    method = _method(file, series_rule)
    factor, probe, units = _units(file)
    rows = _rows(file, key, entries, factor)
    depth = _depth(file, key, rows, layout)
    planned = file.lookup(FILE_FIELDS["epochs"], file.count)
    header = HeaderRow(
        spec=_spec(file, method, depth, planned, probe, cls_view=_uses(entries, "hidden_norms_cls")),
        source=_source(file, layout, key, units),
    )
    end = _end(file, key, rows, planned, layout)
    name = file.name if layout == "penalty" else f"{file.name}#{key}"
    return RunLog(name, header, tuple(rows), (), end, tuple(file.problems))


def _method(file: ForeignFile, series_rule: str | None) -> Method:
    """Rule, credit norm and penalty: from the content, else from the file name."""
    stated = series_rule or file.lookup(FILE_FIELDS["method"], file.text)
    if stated is None:
        match = _NAME_RULE.match(file.name)
        stated = match[0] if match and match[0] in _PUBLISHED_RULES else None
        if stated is not None:
            file.from_name.append("rule")
    try:
        method = parse_method(stated) if stated is not None else Method("unknown")
    except BadInput:
        method = Method(str(stated))
    norm = file.lookup(FILE_FIELDS["credit_norm"], file.text)
    if norm not in (None, "none", "rms"):
        raise file.bad("credit_norm", f"wanted 'none' or 'rms', got {norm!r}")
    penalty = file.lookup(FILE_FIELDS["penalty"], file.number)
    if penalty is None and series_rule is None and (match := _NAME_PENALTY.search(file.name)):
        penalty = float(match[1])
        file.from_name.append("penalty")
    if penalty is not None and not (math.isfinite(penalty) and penalty >= 0):
        raise file.bad("penalty", f"wanted a finite number of at least 0, got {penalty}")
    return replace(
        method,
        credit_norm="rms" if "rms" in (norm, method.credit_norm) else "none",
        penalty=method.penalty if penalty is None else penalty,
    )


def _spec(
    file: ForeignFile, method: Method, depth: int | None, planned: int | None, probe: ProbeSpec, *, cls_view: bool
) -> RunSpec:
    seed = file.lookup(FILE_FIELDS["seed"], file.count)
    if seed is None and (match := _NAME_SEED.search(file.name)):
        seed = int(match[1])
        file.from_name.append("seed")
    data = file.lookup(FILE_FIELDS["data"], file.text)
    try:
        return RunSpec(
            rule=method.rule,
            options={key: literal(str(value)) for key, value in method.options.items()} or None,
            fixed_feedback=method.fixed_feedback or None,
            origin="import",
            width=file.lookup(FILE_FIELDS["width"], file.count),
            depth=depth,
            terminal_ln=file.lookup(FILE_FIELDS["terminal_ln"], file.flag),
            view="cls" if cls_view else None,
            data=DataSpec(name=data) if data else None,
            classes=file.lookup(FILE_FIELDS["classes"], file.count),
            # An imported log seldom says how its credit was normalised or which blocks trained: unknown stays None.
            credit_norm="rms" if method.credit_norm == "rms" else None,
            penalty=method.penalty or None,
            train_last=None if method.train_last == "all" else method.train_last,
            train_embedding=None if method.train_embedding else False,
            seed=seed,
            epochs=planned,
            batch=file.lookup(FILE_FIELDS["batch"], file.count),
            probe=probe,
        )
    except ValidationError as error:
        raise file.bad("config", explain(error)) from None


def _units(file: ForeignFile) -> tuple[float, ProbeSpec, str]:
    """Factor to sum-reduced per-sample gradients, the probe spec, and the same in words."""
    size = file.lookup(FILE_FIELDS["probe_size"], file.count)
    if size == 0:
        raise file.bad("probe_size", "wanted at least 1, got 0")
    reduction = file.lookup(FILE_FIELDS["reduction"], file.text)
    if reduction not in (None, "mean", "sum"):
        raise file.bad("reduction", f"wanted 'mean' or 'sum', got {reduction!r}")
    units = Units.stated(reduction, size)
    probe = ProbeSpec(n=size, batch=size, reduction="sum" if units.known else None, mode=None, redraws=0, directions=0)
    if reduction == "sum":
        said = "sum-reduced, as stated"
    elif units.known:
        said = f"mean-reduced at N={size}, as stated; multiplied by {size}"
    else:
        n = PUBLISHED_PROBE_SIZE
        said = f"not stated; read as mean-reduced at N={n} (the published units) and multiplied by {n}"
    return units.factor, probe, said


def _source(file: ForeignFile, layout: Layout, key: str, units: str) -> dict[str, str]:
    source = {"file": file.name, "layout": layout, "series": key, "reference_units": units}
    if file.from_name:
        source["from_file_name"] = ", ".join(file.from_name)
        file.problems.append(f"read from the file name, since the content does not say: {source['from_file_name']}")
    return source


def _rows(file: ForeignFile, key: str, entries: list[Any], factor: float) -> list[EpochRow]:
    rows: list[EpochRow] = []
    for index, entry in enumerate(entries):
        where = f"{key}[{index}]"
        if not isinstance(entry, dict):
            raise file.bad(where, f"wanted an object, got {type_of(entry)}")
        row = _row(file, where, entry, factor)
        if rows and row.epoch <= rows[-1].epoch:
            raise file.bad(f"{where}.epoch", f"epoch {row.epoch} follows epoch {rows[-1].epoch}; epochs must increase")
        rows.append(row)
    gaps = [(a.epoch, b.epoch) for a, b in pairwise(rows) if b.epoch > a.epoch + 1]
    if gaps:
        file.problems.append(f"{len(gaps)} gaps in the epochs, the first after epoch {gaps[0][0]}")
    return rows


def _row(file: ForeignFile, where: str, entry: dict[str, Any], factor: float) -> EpochRow:
    if "epoch" not in entry:
        raise file.bad(f"{where}.epoch", "missing; every entry must say its epoch")
    lost: dict[str, str] = {}
    hidden = _norms(file, where, entry, "hidden", 1.0, lost)
    reference = _norms(file, where, entry, "reference", factor, lost)
    if hidden is None and (key := _key(entry, "hidden_last")):
        last = file.norm(f"{where}.{key}", entry[key], 1.0, f"hidden.median[{PENALTY_BLOCKS}]", lost)
        hidden = [*[None] * PENALTY_BLOCKS, last]
    if reference is None and (key := _key(entry, "reference_2")):
        g_2 = file.norm(f"{where}.{key}", entry[key], factor, "reference.median[2]", lost)
        reference = [None, None, g_2, *[None] * (PENALTY_BLOCKS - 2)]
    accuracy, gamma = (_key(entry, meaning) for meaning in ("accuracy", "gamma"))
    if hidden is None and reference is None and accuracy is None:
        known = ", ".join(name for names in ROW_FIELDS.values() for name in names)
        raise file.bad(where, f"no norm and no accuracy; known fields: {known}")
    try:
        return EpochRow(
            epoch=file.count(f"{where}.epoch", entry["epoch"]),
            test_accuracy=_accuracy(file, f"{where}.{accuracy}", entry.get(accuracy or ""), lost),
            hidden=Norms(median=hidden) if hidden is not None else None,
            reference=Norms(median=reference) if reference is not None else None,
            gamma=_gamma(file, f"{where}.{gamma}", entry.get(gamma or ""), lost),
            nonfinite=lost,
        )
    except ValidationError as error:
        raise file.bad(where, explain(error)) from None


def _key(entry: dict[str, Any], meaning: str) -> str | None:
    return next((key for key in ROW_FIELDS[meaning] if entry.get(key) is not None), None)


def _uses(entries: list[Any], key: str) -> bool:
    return any(isinstance(entry, dict) and key in entry for entry in entries)


def _norms(
    file: ForeignFile, where: str, entry: dict[str, Any], meaning: str, factor: float, lost: dict[str, str]
) -> list[float | None] | None:
    key = _key(entry, meaning)
    if key is None:
        return None
    values = entry[key]
    if not isinstance(values, list) or len(values) < 2:
        raise file.bad(f"{where}.{key}", f"wanted a list of at least 2 norms, one per state, got {type_of(values)}")
    return [
        file.norm(f"{where}.{key}[{state}]", value, factor, f"{meaning}.median[{state}]", lost)
        for state, value in enumerate(values)
    ]


def _accuracy(file: ForeignFile, where: str, value: Any, lost: dict[str, str]) -> float | None:
    accuracy = file.finite(where, value, "test_accuracy", lost)
    if accuracy is not None and not 0 <= accuracy <= 1:
        raise file.bad(where, f"an accuracy is a fraction in [0, 1], got {accuracy:g}")
    return accuracy


def _gamma(file: ForeignFile, where: str, value: Any, lost: dict[str, str]) -> Gamma | None:
    cosine = file.finite(where, value, "gamma.published", lost)
    if cosine is not None and not abs(cosine) <= 1 + 1e-6:
        raise file.bad(where, f"a cosine lies in [-1, 1], got {cosine:g}")
    return None if cosine is None else Gamma(published=cosine)


def _depth(file: ForeignFile, key: str, rows: list[EpochRow], layout: Layout) -> int | None:
    """L: from the lists, checked against what the file states; the penalty layout has no lists."""
    stated = file.lookup(FILE_FIELDS["depth"], file.count)
    if layout == "penalty" and not any(_full(row) for row in rows):
        return stated
    lengths = {len(norms.median) for row in rows for norms in (row.hidden, row.reference) if norms is not None}
    if len(lengths) > 1:
        raise file.bad(key, f"lists of norms of different lengths {sorted(lengths)}; wanted one entry per state")
    if not lengths:
        return stated
    depth = lengths.pop() - 1
    if stated is not None and stated != depth:
        raise file.bad(key, f"{depth + 1} norms per epoch, but {stated} blocks are stated; wanted blocks + 1 states")
    return depth


def _full(row: EpochRow) -> bool:
    return any(norms is not None and norms.median[0] is not None for norms in (row.hidden, row.reference))


def _end(file: ForeignFile, key: str, rows: list[EpochRow], planned: int | None, layout: Layout) -> EndRow | None:
    """How the run ended, as far as the file says; None when it is truncated or does not say."""
    last = rows[-1]
    for row in rows:
        if any(path.startswith(("hidden", "reference")) for path in row.nonfinite):
            reason = f"norms became non-finite at epoch {row.epoch}"
            return EndRow(status="diverged", epoch=row.epoch, reason=reason, test_accuracy=last.test_accuracy)
    accuracy = (
        file.lookup(FILE_FIELDS["final_accuracy"], lambda where, value: _accuracy(file, where, value, {}))
        if layout == "penalty"
        else None
    )
    if planned is not None and last.epoch < planned:
        file.problems.append(f"{key} stops at epoch {last.epoch} of {planned}: unfinished")
        return None
    if accuracy is None and planned is None and layout == "penalty":
        file.problems.append("neither a final accuracy nor the planned epochs are stated: read as unfinished")
        return None
    if planned is None and layout == "snapshot":
        file.problems.append("the planned epochs are not stated: read as finished")
    return EndRow(
        status="finished", epoch=last.epoch, test_accuracy=last.test_accuracy if accuracy is None else accuracy
    )
