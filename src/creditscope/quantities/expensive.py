"""What the expensive probes measure."""

from creditscope.quantities.quantity import ProbeQuantity, held, one
from creditscope.records.measured import Numbers
from creditscope.records.rows import ProbeRow


def _error(row: ProbeRow) -> Numbers | None:
    if row.fidelity is None:
        return None
    phis = row.fidelity.median
    return row.fidelity.error or [None if phi is None else max(0.0, 1 - phi * phi) ** 0.5 for phi in phis]


DRIFT = ProbeQuantity("drift", "drift", "", "drift at N = 128", "one", one("drift", "at_128"), field="drift", log=False)
PHI = ProbeQuantity(
    "phi", "φ_l", "cosine", "fidelity φ of the reference, median", "state", held("fidelity", "median"), field="fidelity"
)
FIDELITY = ProbeQuantity(
    "fidelity", "√(1 − φ_l²)", "", "cosine error √(1 − φ²) of the reference", "state", _error, log=True
)
CLAMP = ProbeQuantity(
    "clamp", "N*", "samples", "clamp onset N* (probe size)", "state", held("clamp", "onset"), log=True
)
NULL_P = ProbeQuantity(
    "null_p", "p", "", "p against the fresh-feedback null", "state", held("null", "p"), field="null_p"
)
RHO = ProbeQuantity("rho", "ρ", "", "ρ: credit against true loss change", "state", held("rho", "credit"), field="rho")
RHO_CONTROL = ProbeQuantity("rho_control", "ρ of g", "", "ρ of the true gradient", "state", held("rho", "control"))
RHO_RANDOM = ProbeQuantity("rho_random", "ρ of noise", "", "ρ of a random vector", "state", held("rho", "random"))
NUDGE = ProbeQuantity(
    "nudge",
    "nudge(c_l)/nudge(g_l)",
    "",
    "nudge efficiency: credit against gradient",
    "state",
    held("nudge", "efficiency"),
    field="nudge_efficiency",
)
NUDGE_CHANGE = ProbeQuantity(
    "nudge_change",
    "nudge(c_l)",
    "nats",
    "loss change after a nudge against the credit (nats)",
    "state",
    held("nudge", "credit"),
)
GRADIENT = ProbeQuantity(
    "gradient",
    "cos(Δ_l, ∇_l)",
    "",
    "gradient cosine: the rule's against BP's",
    "block",
    held("gradient_cosine"),
    field="gradient_cosine",
    angle=True,
    null=lambda row: row.gradient_null,
)
DESCENT = ProbeQuantity(
    "descent",
    "cos(∇_l, Δθ_l)",
    "",
    "step descent: cosine of the step and BP's gradient",
    "block",
    held("step_descent"),
    field="step_descent",
    angle=True,
)
PROBE_ACCURACY = ProbeQuantity(
    "probe_accuracy",
    "probe accuracy",
    "",
    "probe accuracy of a ridge readout",
    "state",
    held("probe_accuracy"),
    field="probe_accuracy",
    log=False,
)
PARTICIPATION = ProbeQuantity(
    "participation",
    "(Σλ)²/Σλ²",
    "",
    "participation ratio of h_l",
    "state",
    held("participation"),
    field="participation",
    log=True,
)
IDLE = ProbeQuantity(
    "idle",
    "accuracy without block l − with it",
    "",
    "change of accuracy with the branch of a block at zero",
    "block",
    held("idle", "change"),
    field="idle",
    log=False,
)
