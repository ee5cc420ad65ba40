"""Order inside a fleet: runs of one rule are neighbours, and inside a rule those that train the same parts."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import TypeVar

import torch
from torch import Tensor

from creditscope.blocks import CreditRule, Moment, RuleState, Task
from creditscope.data.order import seeded_generator
from creditscope.engine.optim import Segment, Stack, moments_of
from creditscope.errors import BadInput
from creditscope.records import RunSpec
from creditscope.rules.build import Given, rule_of

# Entries of one run's state on a batch from which on a GPU is bound by arithmetic.
LARGE = 2**18
_RuleKey = tuple[str, str, bool, int, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Group:
    """Neighbouring runs with one rule.

    Args:
        rules: The rule of each run; they differ in float options alone.
        start: First run.
        stop: One past the last.
        state: The rule's state, stacked over the group's runs; training changes it in place.
        initial: The same before training; the state itself where nothing of it learns.
        first: First moments of the entries that the optimiser trains.
        second: Second moments of them, where the optimiser has such.
        numbers: The rule's float options and λ (``penalty``), one entry a run each.
        noise: Shapes of the random numbers that one run wants for a step.
        exact: Per state, whether the credit is exact by construction.
        trained: Names of the parameters that train in some run; no other gradient is formed.
    """

    rules: tuple[CreditRule, ...]
    start: int
    stop: int
    state: Stack
    initial: Stack
    first: Stack
    second: Stack
    numbers: Stack
    noise: Mapping[str, tuple[int, ...]]
    exact: tuple[bool, ...]
    trained: frozenset[str]

    @property
    def rule(self) -> CreditRule:
        """The rule of its first run."""
        return self.rules[0]

    @cached_property
    def variants(self) -> tuple[CreditRule, ...]:
        """Its rules, each once: found here, because a step asks them all."""
        return tuple(dict.fromkeys(self.rules))

    @property
    def runs(self) -> slice:
        """Its runs in the fleet."""
        return slice(self.start, self.stop)

    def steps_taken(self, moments: Iterable[Moment]) -> tuple[int, int]:
        """How many steps its weights took, and how many the trained entries of its state.

        Args:
            moments: The steps that were done.
        """
        moves = [self.rule.moves(self.rule.phase(moment)) for moment in moments]
        return sum(each.weights for each in moves), sum(each.state for each in moves)

    def state_of(self, run: int) -> RuleState:
        """One run's own state.

        Args:
            run: Index in the fleet.
        """
        return {name: stack[run - self.start] for name, stack in self.state.items()}


def fleet_order(spec: RunSpec) -> tuple[_RuleKey, bool, str, bool, float, str]:
    """Sorts runs so that rules, masks and learning rates are neighbours; the run id makes it total."""
    return (_rule_key(spec), _is_frozen(spec), *_training_order(spec), spec.run_id)


def _rule_key(spec: RunSpec) -> _RuleKey:
    """What must agree for two runs to be mapped together: all of the rule but its float options."""
    options = sorted((name, str(value)) for name, value in (spec.options or {}).items() if not isinstance(value, float))
    return spec.rule, spec.credit_norm or "none", spec.fixed_feedback is True, spec.anchors or 0, tuple(options)


def _is_frozen(spec: RunSpec) -> bool:
    return spec.train_last == 0


def _training_order(spec: RunSpec) -> tuple[str, bool, float]:
    assert spec.optimiser is not None
    return str(spec.train_last), spec.train_embedding is not False, spec.optimiser.lr


def build_groups(
    specs: Sequence[RunSpec], task: Task, params: Stack, trained: Sequence[frozenset[str]], given: Given
) -> Iterator[Group]:
    """One group a rule, with the state of each run drawn from its own seed.

    Where arithmetic is the bound frozen twins are a group apart: their blocks need no gradient. A GPU is bound by the
    number of kernels until the states are large; up to there they share those of their rule.

    Args:
        specs: The runs, in fleet order.
        task: What is trained.
        params: Stacked parameters at initialisation.
        trained: Names of the parameters that train, run by run.
        given: Rules that the user passed.
    """
    like = next(iter(params.values()))
    two = specs[0].optimiser is None or moments_of(specs[0].optimiser) == 2
    start = 0
    entries = (specs[0].batch or 1) * max(math.prod(shape) for shape in task.shapes)
    apart = like.device.type == "cpu" or entries > LARGE

    def kind(spec: RunSpec) -> tuple[_RuleKey, bool, tuple[str, bool]]:
        # A rule that updates its own state may ask what trains: runs in which other parameters train are another group.
        trains = _training_order(spec)[:2] if rule_of(spec, given).learns else ("", False)
        return _rule_key(spec), apart and _is_frozen(spec), trains

    for _, members in groupby(specs, key=kind):
        runs = list(members)
        stop = start + len(runs)
        rules = tuple(rule_of(spec, given) for spec in runs)
        own = {name: p[start] for name, p in params.items()}
        drawn = [
            rule.init(task, {name: p[run] for name, p in params.items()}, seeded_generator(spec.seed or 0, "feedback"))
            for run, (rule, spec) in enumerate(zip(rules, runs, strict=True), start)
        ]
        _refuse_names(rules[0], drawn[0], params)
        wanted = partial(_noise, task=task, params=own, batch=runs[0].batch or 1)
        noise = one_answer(rules, "noise", wanted)
        state = {name: torch.stack([d[name] for d in drawn]) for name in drawn[0]}
        learning = {
            name: state[name]
            for name in sorted(
                frozenset[str]().union(*(_trained_state(rules[0], drawn[0], t) for t in trained[start:stop]))
            )
        }
        yield Group(
            rules=rules,
            start=start,
            stop=stop,
            state=state,
            initial={name: t.clone() for name, t in state.items()} if rules[0].learns else state,
            first={name: torch.zeros_like(t) for name, t in learning.items()},
            second={name: torch.zeros_like(t) for name, t in learning.items()} if two else {},
            numbers=_numbers(runs, rules, like),
            noise=noise,
            exact=tuple(one_answer(rules, "exact", lambda rule: rule.exact(task.blocks.depth))),
            trained=frozenset[str]().union(*trained[start:stop]),
        )
        start = stop


def _numbers(specs: Sequence[RunSpec], rules: Sequence[CreditRule], like: Tensor) -> Stack:
    """Float options and λ as one number a run; no λ where no run has one."""
    names = [name for name, value in rules[0].options.items() if isinstance(value, float)]
    columns = {name: [rule.options[name] for rule in rules] for name in names}
    if any(spec.penalty for spec in specs):
        columns["penalty"] = [spec.penalty or 0.0 for spec in specs]
    return {name: torch.tensor(column, device=like.device, dtype=like.dtype) for name, column in columns.items()}


_T = TypeVar("_T")


def _noise(rule: CreditRule, task: Task, params: Mapping[str, Tensor], batch: int) -> dict[str, tuple[int, ...]]:
    asked = rule.noise(task, params, batch)
    if not all(isinstance(shape, tuple) for shape in asked.values()):
        raise BadInput(f"rule {rule.name}: noise wants a tuple of sizes for each name, got {asked}")
    return asked


def one_answer(rules: Sequence[CreditRule], what: str, ask: Callable[[CreditRule], _T]) -> _T:
    """What every rule of a group answers; float options differ between them, so the answer may not depend on one.

    Args:
        rules: The rules.
        what: What is asked, for the message.
        ask: Asks one.
    """
    answers = [ask(rule) for rule in rules]
    if any(answer != answers[0] for answer in answers):
        raise BadInput(
            f"rule {rules[0].name}: {what} depends on a float option; make that option a whole number or text"
        )
    return answers[0]


def _refuse_names(rule: CreditRule, state: RuleState, params: Stack) -> None:
    if not isinstance(state, dict):
        raise BadInput(f"rule {rule.name}: init gave a {type(state).__name__}, wanted a dict of tensors by name")
    for name in state:
        if name in params:
            raise BadInput(
                f"rule {rule.name}: its state has an entry {name!r}, as the model has a parameter; rename it"
            )


def _trained_state(rule: CreditRule, state: RuleState, params: frozenset[str]) -> frozenset[str]:
    """The entries of a rule's state that the optimiser trains, each known to be there."""
    names = frozenset(rule.trained(state, params))
    unknown = sorted(names - set(state))
    if unknown:
        raise BadInput(f"rule {rule.name} declares {unknown[0]!r} trained, and its state has no such entry")
    if names and not rule.learns:
        raise BadInput(f"rule {rule.name} trains {min(names)!r} and does not say that it learns; set learns = True")
    return names


def build_segments(
    groups: Sequence[Group], specs: Sequence[RunSpec], trained: Sequence[frozenset[str]]
) -> Iterator[Segment]:
    """Inside each group, neighbours that train the same parameters at the same learning rate.

    Args:
        groups: The groups, in order.
        specs: The runs, in fleet order.
        trained: Names of the parameters that train, run by run.
    """
    for group in groups:
        start = group.start
        members = specs[group.runs]
        for (*_, lr), same in groupby(members, key=_training_order):
            stop = start + len(list(same))
            here = slice(start - group.start, stop - group.start)
            state = {name: t[0] for name, t in group.state.items()}
            names = _trained_state(group.rule, state, trained[start])
            own, first, second = (
                {name: stack[name][here] for name in sorted(names) if name in stack}
                for stack in (group.state, group.first, group.second)
            )
            yield Segment(start, stop, lr, trained[start], own, first, second)
            start = stop
