"""Probes measure in full precision: flags are recorded inside a probed forward pass, and are back after it."""

import pytest
import torch
from cases.snapshots import in_run_dtype, mlp_snapshot

from creditscope.probes.expensive import measure_expensive
from creditscope.probes.precision import full_precision, switched_off

BACKENDS = torch.backends
PARTS = {
    "cuda.matmul": BACKENDS.cuda.matmul,
    "cudnn.conv": BACKENDS.cudnn.conv,
    "cudnn.rnn": BACKENDS.cudnn.rnn,
    "cpu.matmul": BACKENDS.mkldnn.matmul,
    "cpu.conv": BACKENDS.mkldnn.conv,
    "cpu.rnn": BACKENDS.mkldnn.rnn,
}


def flags():
    """Every switch as torch reads it now; an older one that cannot be read says so."""

    def read(switch):
        try:
            return switch()
        except RuntimeError:
            return "unreadable"

    return {
        **{name: part.fp32_precision for name, part in PARTS.items()},
        "products": read(torch.get_float32_matmul_precision),
        "allow_tf32": read(lambda: BACKENDS.cuda.matmul.allow_tf32),
        "cudnn.allow_tf32": read(lambda: BACKENDS.cudnn.allow_tf32),
        "autocast": torch.is_autocast_enabled("cpu"),
    }


def older(precision):
    torch.set_float32_matmul_precision(precision)


def newer():
    BACKENDS.cuda.matmul.fp32_precision = "tf32"
    BACKENDS.mkldnn.conv.fp32_precision = "bf16"


def for_all():
    for part in PARTS.values():
        part.fp32_precision = "none"
    BACKENDS.fp32_precision = "tf32"


SETTINGS = {
    "defaults": lambda: None,
    "high": lambda: older("high"),
    "medium": lambda: older("medium"),
    "allow_tf32": lambda: setattr(BACKENDS.cuda.matmul, "allow_tf32", True),
    "cudnn off": lambda: setattr(BACKENDS.cudnn, "allow_tf32", False),
    "newer": newer,
    "for all": for_all,
}


@pytest.fixture(params=SETTINGS)
def setting(request):
    """One way in which users ask for fast products; torch's own defaults afterwards."""
    begun = flags()
    SETTINGS[request.param]()
    yield request.param
    BACKENDS.fp32_precision = "none"
    BACKENDS.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("highest")
    for name, part in PARTS.items():
        part.fp32_precision = begun[name]
    assert flags() == begun


def recorded(snapshot):
    """The flags at every forward pass of the expensive set."""
    seen = []
    handle = snapshot.task.blocks.modules[0].register_forward_pre_hook(lambda *_: seen.append(flags()))
    with handle:
        row = measure_expensive(snapshot, 3, 2, keep_draws=False)
    assert row.fidelity is not None, row.not_measured
    return seen


def test_every_probed_pass_runs_in_full_precision_and_the_settings_come_back(setting):
    before = flags()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = recorded(in_run_dtype(mlp_snapshot("dfa", n=8), torch.float32))
        assert torch.is_autocast_enabled("cpu")
    assert len(inside) > 5
    for each in inside:
        assert {each[name] for name in PARTS} == {"ieee"}
        assert each["autocast"] is False
        if setting not in ("newer", "for all"):
            assert (each["products"], each["allow_tf32"], each["cudnn.allow_tf32"]) == ("highest", False, False)
    assert flags() == before
    if setting == "for all":
        BACKENDS.fp32_precision = "ieee"
        assert {part.fp32_precision for part in PARTS.values()} == {"ieee"}, "what follows torch goes on following it"


def test_the_settings_come_back_after_an_error(setting):
    before = flags()
    with pytest.raises(ZeroDivisionError), full_precision():
        raise ZeroDivisionError
    assert flags() == before


def test_what_was_on_is_said():
    assert switched_off("cpu") == "nothing"
    assert switched_off("cuda") == "tf32 convolutions, tf32 recurrent layers"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert switched_off("cpu") == "autocast bfloat16"
    older("medium")
    try:
        assert switched_off("cpu") == "bf16 matmul"
    finally:
        older("highest")
        BACKENDS.mkldnn.matmul.fp32_precision = "none"
        BACKENDS.cuda.matmul.fp32_precision = "none"
