"""One run of a fleet as the probes see it."""

from typing import TYPE_CHECKING

from torch import Tensor

from creditscope.blocks import Batch, Snapshot
from creditscope.data.order import epoch_order
from creditscope.engine.noise import one_draw
from creditscope.engine.state import State
from creditscope.engine.step import schedule_factor
from creditscope.probes.seeds import probe_generator
from creditscope.rules.anchor import unanchored

if TYPE_CHECKING:
    from creditscope.engine.fleet import Fleet


def take_snapshot(fleet: "Fleet", run: int, epoch: int, state: State) -> Snapshot:
    """One run as the probes see it.

    Args:
        fleet: The fleet.
        run: Index in it.
        epoch: Epochs done.
        state: The fleet's state at that epoch.
    """
    spec, group = fleet.specs[run], fleet.group_of(run)
    at, rule = fleet.groups.index(group), group.rules[run - group.start]
    assert spec.probe is not None
    assert spec.batch is not None
    assert spec.seed is not None
    assert spec.view is not None
    n = spec.probe.n or 1024
    fit, test = 4 * n, 2 * n
    data, steps = fleet.data, epoch * fleet.steps_per_epoch
    own = epoch_order(spec.seed, 1, len(data.x_train), spec.batch)[0].to(fleet.device)
    return Snapshot(
        task=fleet.task._replace(
            buffers={name: b[run] for name, b in state.buffers.items()},
            phase=unanchored(rule).phase(fleet.moment(steps)),
        ),
        params={name: p[run] for name, p in state.params.items()},
        init={name: p[run] for name, p in fleet.init.items()},
        rule=rule,
        state={name: t[run - group.start] for name, t in state.rules[at][0].items()},
        probe=Batch(fleet.inputs(data.x_test[:n]), data.y_test[:n]),
        batch=fleet.probe_batch(),
        view=spec.view,
        seed=spec.seed,
        epoch=epoch,
        step=steps,
        trained=fleet.trained[run],
        train=Batch(fleet.inputs(data.x_train[own]), fleet.draws.targets[run][own]),
        update=_last_update(fleet, run, epoch, state),
        fit=Batch(fleet.inputs(data.x_train[:fit]), data.y_train[:fit]),
        test=Batch(fleet.inputs(data.x_test[:test]), data.y_test[:test]),
        noise=one_draw(group.noise, probe_generator(spec.seed, epoch, "noise", fleet.device), fleet.dtype),
    )


def _last_update(fleet: "Fleet", run: int, epoch: int, state: State) -> dict[str, Tensor] | None:
    if epoch == 0:
        return None
    spec = fleet.specs[run]
    assert spec.optimiser is not None
    lr = spec.optimiser.lr * schedule_factor(spec.schedule or "constant", epoch, spec.epochs or epoch)
    steps = float(state.steps[run])
    moments = [stack for stack in (state.first, state.second) if stack]
    return {
        name: fleet.optimiser.last_update([stack[name][run] for stack in moments], steps, lr)
        for name in fleet.trained[run]
    }
