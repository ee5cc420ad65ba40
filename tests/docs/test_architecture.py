"""The architecture page is true: its two lists of hops are those of a real run, and the rule on it trains."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch
from cases.fleets import features, spec

import creditscope as cs
from creditscope.records import ProbeSpec

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
MOST_HOPS = 15


def hops(title):
    """The names of a numbered list under a heading."""
    section = TEXT.split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. `([\w.]+)`:", section, flags=re.MULTILINE)


def name_of(frame):
    return f"{frame.f_globals.get('__name__', '').removeprefix('creditscope.')}.{frame.f_code.co_qualname}"


def ours(frame):
    return frame.f_globals.get("__name__", "").startswith("creditscope.") and "<" not in frame.f_code.co_name


def holds(value, number, depth=6):
    """Whether a number stands in a value, a tensor or a record."""
    if isinstance(value, float):
        return value == number
    if isinstance(value, torch.Tensor):
        try:
            return value.is_floating_point() and not value.is_meta and bool((value.double() == number).any())
        except RuntimeError:  # mapped over runs: its values are not to be had
            return False
    if depth == 0:
        return False
    if isinstance(value, dict):
        return any(holds(part, number, depth - 1) for part in value.values())
    if isinstance(value, (list, tuple)):
        return any(holds(part, number, depth - 1) for part in value)
    fields = getattr(type(value), "model_fields", None) or getattr(value, "__dataclass_fields__", ())
    return any(holds(getattr(value, name, None), number, depth - 1) for name in fields)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Of a real run: the functions called, those that hand ‖g_L‖ on, and the stack when a log was begun."""
    run = spec("dfa", epochs=1, probe=ProbeSpec(n=15, batch=15, epochs=(), redraws=3, directions=2))

    def work(out):
        (log,) = cs.train([run], out, data=features(), device="cpu")
        cs.write_report([out], out / "report.html")
        return log.epochs[-1].reference.median[-1]

    number = work(tmp_path_factory.mktemp("first"))
    called, handed, begun = {}, {}, []
    state = {"busy": False}

    def watch(frame, event, result):
        if state["busy"] or event not in ("call", "return") or not ours(frame):
            return
        state["busy"] = True
        try:
            name = name_of(frame)
            called.setdefault(name, len(called))
            if name == "records.log.LogWriter.create" and not begun:
                at = frame
                while at is not None:
                    if ours(at):
                        begun.insert(0, name_of(at))
                    at = at.f_back
            given = result if event == "return" else list(frame.f_locals.values())
            if name not in handed and holds(given, number):
                handed[name] = len(handed)
        finally:
            state["busy"] = False

    out = tmp_path_factory.mktemp("second")
    sys.setprofile(watch)
    try:
        assert work(out) == number
    finally:
        sys.setprofile(None)
    return called, handed, begun


def test_a_spec_goes_the_hops_of_the_page(trace):
    assert trace[2] == hops("The hops of a spec")
    assert len(trace[2]) <= MOST_HOPS


def test_the_number_goes_the_hops_of_the_page(trace):
    called, handed, _ = trace
    listed = hops("The hops of one number")
    assert len(listed) <= MOST_HOPS
    assert all(name in called for name in listed[:2]), "mapped over runs: the number is not to be seen there"
    passed = [name for name in listed if name in handed]
    read = listed.index("quantities.quantity.Quantity.series") + 1
    assert [name for name in listed[2:read] if name not in handed] == []
    assert all(name in called for name in listed[read:]), "from there on it is rounded and in words"
    measured = listed.index("records.log.LogWriter.append")
    order = [handed[name] for name in passed if name in listed[: measured + 1]]
    assert order == sorted(order), "in the order of the page"


def test_no_module_on_the_way_to_the_log_is_left_out(trace):
    """Whoever hands the number on before it is written lies in a module of the list."""
    _, handed, _ = trace
    listed = hops("The hops of one number")
    written = handed["records.log.LogWriter.append"]
    modules = {name.rpartition(".")[0].split(".Fleet")[0] for name in listed}
    on_the_way = {name for name, at in handed.items() if at < written}
    # The row itself, a copy to the CPU, pure mathematics, and the cosines, which find the number again for themselves.
    helpers = {"records.rows", "records.measured", "engine.state", "probes.functional", "probes.epoch_cosines"}
    strange = {name for name in on_the_way if not any(name.startswith(f"{module}.") for module in (*modules, *helpers))}
    assert strange == set()


def test_the_rule_on_the_page_trains_in_company(tmp_path):
    """One file: written as it stands, imported, trained with twins, and shown by its own words."""
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    path = tmp_path / "my_rules.py"
    path.write_text(code, encoding="utf-8")
    found = importlib.util.spec_from_file_location("my_rules", path)
    module = importlib.util.module_from_spec(found)
    sys.modules["my_rules"] = module
    found.loader.exec_module(module)
    methods = [
        "growing",
        "growing@frozen",
        "growing@fixed-feedback",
        "growing-rms+pen0.1",
        "growing(strength=0.5)",
        "bp",
    ]
    changes = {"width": 8, "depth": 2, "epochs": 2, "batch": 12, "probe.n": 16, "probe.redraws": 9}
    runs = cs.specs(methods, data=features(), seeds=[1, 2], changes=changes, rules=[module.Growing])
    logs = cs.train(runs, tmp_path / "runs", data=features(), device="cpu", rules=[module.Growing])
    by_method = {log.spec.method: log for log in logs}
    assert set(by_method) == set(methods)
    learned = by_method["growing"].epochs[-1].movement.feedback
    assert min(learned.values()) > 0
    assert by_method["growing@fixed-feedback"].epochs[-1].movement.feedback is None
    assert by_method["growing"].header.card.formula.startswith("c_{l+1} = e·B_l")
    assert "growing" in cs.audit(logs).to_text()
