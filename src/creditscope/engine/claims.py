"""What a rule claims of itself, put to the test on a few samples before it trains: exact states, penalty, -rms."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from creditscope.blocks import Batch, CreditRule, Params, RuleState, Task, observe
from creditscope.engine.locality import is_local
from creditscope.engine.noise import one_draw
from creditscope.engine.step import Sent, take_step
from creditscope.errors import BadInput
from creditscope.probes.functional.cosine import cosines
from creditscope.probes.seeds import probe_generator
from creditscope.rules.anchor import unanchored
from creditscope.rules.wrappers import Normalised

if TYPE_CHECKING:
    from creditscope.engine.fleet import Fleet
    from creditscope.engine.groups import Group

# A credit that is said to be the gradient has at least this cosine with it, rounding in half precision included.
EXACT = 0.99
_SAMPLES = 4


def check_claims(fleet: "Fleet") -> tuple[bool | None, ...]:
    """Refuse a rule whose word on itself does not hold, and prove what can be proved.

    Args:
        fleet: A fleet at initialisation.

    Returns:
        For each run, whether its rule was shown to be local; None where it has no loss of its own in each block.
    """
    local: list[bool | None] = []
    batch = Batch(fleet.inputs(fleet.data.x_train[:_SAMPLES]), fleet.data.y_train[:_SAMPLES])
    for group in fleet.groups:
        params = {name: p[group.start] for name, p in fleet.params.items()}
        task = fleet.task._replace(buffers={name: b[group.start] for name, b in fleet.buffers.items()})
        check_exact(group.rule, task, params, group.state_of(group.start), batch)
        phases = _phases(fleet, group)
        if group.rule.family == "objective":
            alike = [(rule, fleet.specs[run].penalty) for run, rule in enumerate(group.rules, group.start)]
            shown = {
                key: is_local(
                    key[0], task, phases, _sent(fleet, group, group.start + alike.index(key), batch), fleet.parts
                )
                for key in set(alike)
            }
            local += [shown[key] for key in alike]
        else:
            local += [None] * len(group.rules)
        whole = [run for run in range(group.start, group.stop) if fleet.trained[run] == frozenset(params)]
        bare = unanchored(group.rule)
        asked = "penalty" in group.numbers or isinstance(bare, Normalised)
        if whole and asked and bare.moves(bare.phase(fleet.moment(0))).weights:
            rule = unanchored(group.rules[whole[0] - group.start])
            check_wrappers(rule, task, _sent(fleet, group, whole[0], batch), rule.phase(fleet.moment(0)))
    return tuple(local)


def _phases(fleet: "Fleet", group: "Group") -> list[str]:
    """Every kind of step that a group takes in its first epoch, and in its last."""
    n, planned = fleet.steps_per_epoch, fleet.planned_steps
    steps = [*range(min(n, planned)), *range(max(0, planned - n), planned)] or [0]
    return list(dict.fromkeys(group.rule.phase(fleet.moment(step)) for step in steps))


def check_exact(rule: CreditRule, task: Task, params: Params, state: RuleState, batch: Batch) -> None:
    """Refuse a rule whose credit is not the gradient where it says so.

    Args:
        rule: The rule of one run.
        task: What is trained.
        params: That run's parameters.
        state: Its state.
        batch: A few samples.
    """
    claims, wanted = rule.exact(task.blocks.depth), task.blocks.depth + 1
    if len(claims) != wanted:
        raise BadInput(f"rule {rule.name}: exact({wanted - 1}) names {len(claims)} states, wanted {wanted}")
    if rule.family != "signal" or not any(claims):
        return
    references = observe(task, params, None, {}, batch).references
    credit = rule.deliver(task, params, state, batch)
    for level, (c, g, claimed) in enumerate(zip(credit, references, claims, strict=True)):
        cosine, defined = cosines(c.flatten(1), g.flatten(1))
        if claimed and bool((cosine[defined] < EXACT).any()):
            raise BadInput(
                f"rule {rule.name} says that its credit at state {level} is the gradient, and it is not; correct its "
                f"exact()"
            )


def check_wrappers(rule: CreditRule, task: Task, sent: Sent, phase: str) -> None:
    """Refuse a penalty or a normalisation that changes nothing: the rule does not heed it.

    Args:
        rule: The rule of one run all of whose parameters train.
        task: What is trained.
        sent: From what that run would take a step.
        phase: Which kind of step.
    """
    step = partial(take_step, task=task, trained=frozenset(sent.params), phase=phase)
    grads = step(rule, sent=sent).grads
    if isinstance(rule, Normalised) and _same(grads, step(rule.rule, sent=sent).grads):
        raise BadInput(f"-rms changes nothing of what {rule.name} does: it does not heed task.normalise; drop -rms")
    if "penalty" in sent.numbers:
        one = {**sent.numbers, "penalty": torch.ones_like(sent.numbers["penalty"])}
        none = {name: value for name, value in sent.numbers.items() if name != "penalty"}
        penalised, plain = (step(rule, sent=sent._replace(numbers=numbers)).grads for numbers in (one, none))
        if _same(penalised, plain):
            raise BadInput(f"+pen changes nothing of what {rule.name} does; set its penalty to 'none', or drop +pen")


def explained(rule: CreditRule, error: RuntimeError) -> Exception:
    """What a rule's author can do about an error of a stacked step.

    Args:
        rule: The rule.
        error: As torch raised it.
    """
    text = str(error)
    if "randomness" in text:
        return BadInput(f"rule {rule.name} draws random numbers in its step; ask for them with noise()")
    if "data-dependent" in text or ".item()" in text:
        return BadInput(
            f"rule {rule.name} decides on the value of a tensor in its step, and float options are tensors there; use "
            f"torch.where, or make the option a whole number"
        )
    return error


def _sent(fleet: "Fleet", group: "Group", run: int, batch: Batch) -> Sent:
    own = {name: p[run] for name, p in fleet.params.items()}
    shapes = group.rule.noise(fleet.task, own, _SAMPLES)
    return Sent(
        own,
        group.state_of(run),
        {name: b[run] for name, b in fleet.buffers.items()},
        {name: value[run - group.start] for name, value in group.numbers.items()},
        one_draw(shapes, probe_generator(0, 0, "claims", fleet.device), fleet.dtype),
        *batch,
    )


def _same(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)
