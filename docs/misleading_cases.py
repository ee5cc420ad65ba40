"""Seven cases in which accuracy and one cosine mislead: each a small computation on real images or committed logs."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import fmean

import torch
from page_data import accuracy, known, last, number, reference, runs
from torch import Tensor, nn
from torch.nn import functional

import creditscope as cs
from creditscope.models.resmlp import ResMLP
from creditscope.protocol.audit import Audit, JudgedCell
from creditscope.protocol.check import Outcome
from creditscope.protocol.checks.direction import Direction
from creditscope.protocol.checks.movement import MovementCheck
from creditscope.scope.credit import rule_credit

WIDTH, DEPTH, CLASSES = 32, 3, 10
SEEDS = 3
NAMES = [f"blocks.{block}" for block in range(DEPTH)]
# A cosine below this is read as none, as our own direction check does.
ALIGNED = Direction.threshold
# Movement below this is the rounding of float64.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Bars:
    """One picture of the truth: bars by name, with a line to compare them with.

    Args:
        title: What is shown.
        values: By label, in order.
        misleading: Labels of the bars that mislead.
        line: A level to compare with; None: none.
        line_label: What it is.
        log: Whether the axis is logarithmic.
    """

    title: str
    values: dict[str, float]
    misleading: tuple[str, ...]
    line: float | None = None
    line_label: str = ""
    log: bool = False


@dataclass(frozen=True)
class Case:
    """One case.

    Args:
        stem: Name of its picture.
        title: In a few words.
        done: What was computed.
        accuracy: What the usual pair shows first.
        cosine: And second.
        cosine_is: What that cosine is.
        ours: What creditscope says.
        beneath: What lies beneath, to be drawn.
        also: What else the usual way says.
        chance: Accuracy of a guess.
    """

    stem: str
    title: str
    done: str
    accuracy: float
    cosine: float
    cosine_is: str
    ours: str
    beneath: Bars
    also: str = ""
    chance: float = 1 / CLASSES

    @property
    def usual(self) -> str:
        """What accuracy and a cosine say together."""
        if self.accuracy <= self.chance:
            return "does not learn"
        return "looks like learning" if self.cosine >= ALIGNED else "learns, but not by its credit"


def both_zero() -> Case:
    """A tool that writes 1 where both gradients vanish measures how well the net fits."""
    logs: list[cs.RunLog] = []
    for seed in range(SEEDS):
        model, init = _net(seed)
        _train(model, lambda net, x, y: _hinge(net(x), y).mean().backward(), epochs=2)
        credit = rule_credit("dfa", dict(zip(["B.0", "B.1", "B.2"], _feedback(1.0, seed + 1), strict=True)))
        logs += _audit(model, init, "fresh-dfa", credit=credit, loss_fn=_hinge, seed=seed).logs
    audit = cs.audit(logs)
    found = [row.cosine for row in map(last, logs) if row.cosine]
    undefined, defined = (
        [fmean(known(values)) for values in each]
        for each in ([cosines.n_undefined for cosines in found], [cosines.n for cosines in found])
    )
    true = fmean(fmean(known(cosines.mean)) for cosines in found)
    share = fmean(undefined) / (fmean(undefined) + fmean(defined))
    patched = fmean(
        (no + yes * fmean(known(cosines.mean))) / (no + yes)
        for no, yes, cosines in zip(undefined, defined, found, strict=True)
    )
    return Case(
        "both-zero",
        "Both gradients are zero, so the cosine is called 1",
        f"{SEEDS} ResMLPs were trained by backprop with a hinge loss: a sample that is classified with a margin has no "
        "error, hence no gradient and no credit. The credit is that of feedback matrices drawn afterwards, which the "
        "nets have never seen.",
        fmean(map(accuracy, logs)),
        patched,
        "mean over samples, 1 written where both vectors vanish",
        f"{100 * share:.0f} % of the samples are `zero-vector`; over the others the cosine is {true:+.2f}. "
        + _said(audit, "direction"),
        Bars(
            "mean cosine over all states",
            {"1 where both vanish": patched, "where it is defined": true},
            ("1 where both vanish",),
        ),
    )


def layer_zero() -> Case:
    """One state carries Γ."""
    claim = runs("dfa-rms", 100)
    audit = cs.audit([*claim, *runs("dfa-rms@frozen", 100), *_controls()])
    gamma, layers = _gamma(claim), _layers(claim)
    return Case(
        "layer-zero",
        "The first layer carries the mean",
        f"dfa-rms after 100 epochs on CIFAR-10, means over {len(claim)} seeds, from the committed logs.",
        fmean(map(accuracy, claim)),
        gamma,
        "Γ, the mean over layers",
        f"Without its first layer the mean is {fmean(layers[1:]):+.3f}. " + _said(audit, "direction", "depth"),
        Bars(
            "cosine by layer, as published",
            {f"l = {layer}": value for layer, value in enumerate(layers)},
            ("l = 0",),
            gamma,
            "Γ",
        ),
    )


def last_block() -> Case:
    """A credit that is exact by construction says nothing about the others: an untrained net has it too."""
    untrained = [replace(log, epochs=log.epochs[:1], probes=log.probes[:1], end=None) for log in runs("fa-block", 100)]
    audit, gamma, layers = cs.audit(untrained), _gamma(untrained), _layers(untrained)
    deep = fmean(value for log in untrained if (found := last(log).gamma) for value in known([found.deep]))
    return Case(
        "last-block",
        "The last block is exact by construction",
        f"fa-block on CIFAR-10, means over {len(untrained)} seeds, from the committed logs, at epoch 0: before any "
        "training.",
        fmean(map(accuracy, untrained)),
        gamma,
        "Γ, the mean over layers",
        f"State {len(layers)} is `exact-by-construction`; over the deep states that are not, the mean is {deep:+.4f}. "
        + _said(audit, "direction"),
        Bars(
            "cosine by layer, as published",
            {f"l = {layer}": value for layer, value in enumerate(layers)},
            ("l = 3",),
            gamma,
            "Γ",
        ),
        also="but its credit looks aligned",
    )


def clamp() -> Case:
    """torch clamps norms at 1e-8: with a tiny reference a perfect credit reads as none, the more so the larger N."""
    claim = runs("dfa-rms", 100)
    norm = fmean(reference(last(log)) for log in claim)
    direction = torch.randn(WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    g = norm * direction / direction.norm()
    # A perfect credit: the very direction of g, at the size of a credit.
    reads = {n: float(functional.cosine_similarity(direction, g / n, dim=0)) for n in (1, 128, 1024, 2048)}
    onset = fmean(known(log.probes[-1].clamp.onset)[-1] for log in claim if log.probes[-1].clamp)
    audit = cs.audit([*claim, *runs("dfa-rms@frozen", 100)])
    return Case(
        "clamp",
        "The clamp of the library makes a perfect credit look like none",
        f"dfa-rms after 100 epochs, {len(claim)} seeds: the median reference gradient at h_L has norm {number(norm)} "
        "in the mean. A credit that points exactly along it was compared with it by "
        "`torch.nn.functional.cosine_similarity`, as a loss averaged over N samples gives it.",
        fmean(map(accuracy, claim)),
        reads[2048],
        "a perfect credit, clamped, N = 2048",
        f"The cosine is 1, without a clamp, at every N. The clamp sets in at N = {onset:.0f}; at N = 2048 a reading is "
        f"{1 / reads[2048]:.0f} times too small. " + _said(audit, "reference"),
        Bars(
            "reading of a perfect credit",
            {f"N = {n}": value for n, value in reads.items()},
            ("N = 2048",),
            1.0,
            "without a clamp",
        ),
    )


def mismatched() -> Case:
    """A frozen net trained by another rule is another net."""
    claim, twin, other = runs("dfa", 100), runs("dfa@frozen", 100), runs("bp@frozen", 100)
    matched, wrong = cs.audit([*claim, *twin, *_controls()]), cs.audit([*claim, *other])
    ours, theirs, theirs_bp = (fmean(map(accuracy, logs)) for logs in (claim, twin, other))
    return Case(
        "mismatched-baseline",
        "The frozen baseline was trained by another rule",
        "dfa after 100 epochs on CIFAR-10, three seeds, from the committed logs; once against its own frozen twin, "
        "once against frozen blocks under an embedding that was trained by backprop.",
        ours,
        _gamma(claim),
        "Γ, the mean over layers",
        f"Against its own twin: {_reason(_outcome(matched, 'depth'))}. With the other baseline alone, depth is "
        f"*{_outcome(wrong, 'depth').ruling}*: {_reason(_outcome(wrong, 'depth'))}.",
        Bars(
            "test accuracy",
            {"dfa": ours, "dfa@frozen": theirs, "bp@frozen": theirs_bp},
            ("bp@frozen",),
            theirs + 0.02,
            "twin + 2 pp",
        ),
        also=f"but {100 * (theirs_bp - ours):.1f} pp worse than leaving the blocks untrained",
    )


def dead_blocks() -> Case:
    """A detach in the wrong place: the credit is perfect and never reaches the weights of the blocks."""
    model, init = _net()
    dead = [p for block in model.blocks for p in block.parameters()]

    def step(net: nn.Module, x: Tensor, y: Tensor) -> None:
        _backprop(net, x, y)
        for weight in dead:
            weight.grad = torch.zeros_like(weight)

    _train(model, step, epochs=3, decay=0.1)
    audit = _audit(model, init, "dead", credit=rule_credit("bp"))
    row = last(_run(audit))
    assert row.cosine is not None
    now = model.state_dict()
    weights = {f"block {b}": f"blocks.{b}.branch.1.weight" for b in range(DEPTH)}
    naive = {block: float((now[name] - init[name]).norm() / init[name].norm()) for block, name in weights.items()}
    return Case(
        "dead-blocks",
        "Blocks that never moved",
        "A ResMLP was trained by a loop that loses the gradient of every weight of its blocks; AdamW decays them.",
        _accuracy(audit),
        fmean(known(row.cosine.mean)),
        "of the credit at the states with the gradient there",
        f"‖θ − θ(0)‖/‖θ(0)‖ is at least {min(naive.values()):.3f} at every block, all of it decay. "
        f"**movement {_outcome(audit, 'movement').ruling}**: decay apart, a block moved by less than {ROUNDING:g}.",
        Bars(
            "movement of a block's first matrix",
            naive | {"decay apart,\nno more than": max(ROUNDING, _moved(audit))},
            tuple(naive),
            MovementCheck.threshold,
            "moved",
            log=True,
        ),
    )


def leaked() -> Case:
    """One forgotten detach, and a rule "without backprop" is backprop."""
    x, y = _images()[1]
    results = {}
    for name, detach in (("with detach", True), ("without", False)):
        model, _ = _net()
        rule = partial(_direct, feedback=_feedback(0.05), detach=detach)
        _train(model, rule, epochs=2)
        local = cs.check_locality(model, NAMES, (x[:64], y[:64]), update_fn=rule)
        right = float((model(x).argmax(1) == y).double().mean())
        results[name] = (right, fmean(_update_cosines(model, rule)), local)
    careful, leaky = results["with detach"], results["without"]
    assert careful[2].local
    leak = leaky[2].leaks[0]
    return Case(
        "leaked-gradients",
        "True gradients leak into a rule without backprop",
        "A ResMLP was trained by direct feedback, once as meant and once by a loop that forgets to detach each block's "
        "input and the head's.",
        leaky[0],
        leaky[1],
        "of its weight updates with backprop's",
        f"`check_locality` finds a **leak**: the update of `{leak.parameter}` in {leak.block} follows the weights of "
        f"{leak.source}. As meant, the rule is local, reaches {careful[0]:.2f} and its updates have a cosine of "
        f"{careful[1]:+.2f}.",
        Bars(
            "cosine of the updates with backprop's",
            {"with detach:\nlocal": careful[1], "without:\na leak": leaky[1]},
            ("without:\na leak",),
            1.0,
            "backprop",
        ),
    )


CASES: tuple[Callable[[], Case], ...] = (*(both_zero, layer_zero, last_block, clamp, mismatched, dead_blocks, leaked),)


@cache
def cases() -> tuple[Case, ...]:
    """Every case, computed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return tuple(case() for case in CASES)
    finally:
        torch.set_num_threads(threads)


def _controls() -> list[cs.RunLog]:
    """What tells whether the task rewards depth, and what the readout alone reaches."""
    return [log for method in ("bp", "bp@frozen", "bp@readout") for log in runs(method, 100)]


def _gamma(logs: Sequence[cs.RunLog]) -> float:
    """The published Γ, mean over seeds."""
    return fmean(value for log in logs if (found := last(log).gamma) for value in known([found.published]))


def _layers(logs: Sequence[cs.RunLog]) -> list[float]:
    """The published cosines of l = 0..L−1, means over seeds."""
    found = [known(row.cosine_published.mean)[:-1] for row in map(last, logs) if row.cosine_published]
    return [fmean(values) for values in zip(*found, strict=True)]


@cache
def _images() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training and test images as float64 vectors: rounding is the same on every machine to the digits shown."""
    data = cs.load_data("fashion-mini")
    train, test = ((data.x_train, data.y_train), (data.x_test[:512], data.y_test[:512]))
    return (_vectors(train[0]), train[1]), (_vectors(test[0]), test[1])


def _vectors(images: Tensor) -> Tensor:
    return images.double().flatten(1) / 255


def _net(seed: int = 0) -> tuple[ResMLP, dict[str, Tensor]]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = ResMLP((784,), CLASSES, width=WIDTH, depth=DEPTH)
    finally:
        torch.set_default_dtype(before)
    return model, copy.deepcopy(model.state_dict())


def _feedback(sd: float, seed: int = 1) -> list[Tensor]:
    made = torch.Generator().manual_seed(seed)
    return [sd * torch.randn(CLASSES, WIDTH, generator=made, dtype=torch.float64) for _ in range(DEPTH)]


def _train(
    model: nn.Module, step: Callable[[nn.Module, Tensor, Tensor], None], epochs: int, decay: float = 0.0
) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=decay)
    (x, y), _ = _images()
    for _ in range(epochs):
        for start in range(0, len(x) - 63, 64):
            optimiser.zero_grad()
            step(model, x[start : start + 64], y[start : start + 64])
            optimiser.step()


def _direct(model: ResMLP, x: Tensor, y: Tensor, feedback: list[Tensor], detach: bool) -> None:
    """Direct feedback in plain code: each block gets the output error through a random matrix of its own."""
    error = (model(x).softmax(1) - functional.one_hot(y, CLASSES)).detach()
    h = model.embed(x)
    surrogate = (h * (error @ feedback[0])).sum()
    for matrix, block in zip(feedback, model.blocks, strict=True):
        h = block(h.detach() if detach else h)
        surrogate = surrogate + (h * (error @ matrix)).sum()
    logits = model.head(model.out_ln(h.detach() if detach else h))
    ((surrogate + functional.cross_entropy(logits, y, reduction="sum")) / len(x)).backward()


def _update_cosines(model: ResMLP, rule: Callable[..., None]) -> list[float]:
    """Per block, the gradient that a rule writes against backprop's, on the same batch."""
    written = []
    for backward in (rule, _backprop):
        model.zero_grad()
        backward(model, *(tensor[:256] for tensor in _images()[1]))
        written.append(
            [torch.cat([p.grad.flatten() for p in block.parameters() if p.grad is not None]) for block in model.blocks]
        )
    return [float(a @ b / math.sqrt(float(a @ a) * float(b @ b))) for a, b in zip(*written, strict=True)]


def _backprop(model: nn.Module, x: Tensor, y: Tensor) -> None:
    functional.cross_entropy(model(x), y).backward()


def _hinge(outputs: Tensor, y: Tensor) -> Tensor:
    return functional.multi_margin_loss(outputs, y, reduction="none")


def _audit(model: nn.Module, init: dict[str, Tensor], name: str, **options: object) -> Audit:
    loader = _images()[1]
    return cs.audit_model(  # type: ignore[arg-type]
        model, blocks=NAMES, loader=loader, init=init, name=name, redraws=199, directions=4, **options
    )


def _judged(audit: Audit) -> JudgedCell:
    """The claim of an audit, beside which backprop may stand as its control."""
    (cell,) = [cell for cell in audit.claims if cell.cell.method != "bp"]
    return cell


def _run(audit: Audit) -> cs.RunLog:
    return _judged(audit).cell.runs[0]


def _accuracy(audit: Audit) -> float:
    return accuracy(_run(audit))


def _outcome(audit: Audit, check: str) -> Outcome:
    return next(outcome for outcome in _judged(audit).outcomes if outcome.name == check)


def _moved(audit: Audit) -> float:
    return known([_outcome(audit, "movement").evidence.value])[0]


def _reason(outcome: Outcome) -> str:
    """The first clauses of a reason, without the digits that follow from rounding alone."""
    return outcome.reason.split("; ±")[0].split("; first fired")[0]


def _said(audit: Audit, *checks: str) -> str:
    """What the checks say, quoted."""
    return " ".join(
        f"**{check} {_outcome(audit, check).ruling}**: {_reason(_outcome(audit, check))}." for check in checks
    )
