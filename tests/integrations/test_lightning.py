"""The Lightning callback in real trainers, both packages: rows, stop, errors, and a training that is left alone."""

import logging
import warnings
from importlib import import_module

import pytest
import torch
from scope.nets import Net, samples
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import creditscope as cs

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]
FAST = {"redraws": 9, "directions": 1}
BOTH = pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])


@pytest.fixture(autouse=True)
def quiet():
    for name in ("lightning.pytorch", "pytorch_lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def module_of(package, at_epoch=None, act=None):
    """A LightningModule as a user writes it, that remembers what it logged."""

    class Module(import_module(package).LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()
            self.accuracies, self.losses, self.rates = [], [], []

        def forward(self, x):
            return self.net(x)

        def on_train_epoch_start(self):
            if self.current_epoch == at_epoch:
                act(self.net)
            self.losses.append([])

        def training_step(self, batch, index):
            x, y = batch
            loss = functional.cross_entropy(self(x), y)
            self.log("train_loss", loss, on_step=False, on_epoch=True)
            self.losses[-1].append(float(loss.detach()))
            self.rates.append(self.optimizers().param_groups[0]["lr"])
            return loss

        def validation_step(self, batch, index):
            x, y = batch
            accuracy = (self(x).argmax(1) == y).double().mean()
            self.log("val_acc", accuracy)
            if not self.trainer.sanity_checking:
                self.accuracies.append(float(accuracy))

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)}

    return Module()


def fit(package, module, callbacks, **options):
    train = DataLoader(TensorDataset(*samples(48)), batch_size=16)
    valid = DataLoader(TensorDataset(*samples(32, seed=2)), batch_size=32)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = import_module(package).Trainer(
        accelerator="cpu", enable_model_summary=False, callbacks=callbacks, **quiet, **({"max_epochs": 3} | options)
    )
    torch.manual_seed(7)
    trainer.fit(module, train, valid)
    return trainer


def callback_of(**options):
    from creditscope.integrations.lightning import CreditScopeCallback

    return CreditScopeCallback(
        lambda module: cs.watch(module, probe=samples(), budget=1.0, **FAST, **options),
        accuracy="val_acc",
        train_loss="train_loss",
    )


@BOTH
def test_the_log_has_the_users_numbers_and_the_audit_of_that_moment(package, tmp_path):
    module = module_of(package)
    start = {name: value.detach().clone() for name, value in module.named_parameters()}
    callback = callback_of(out=tmp_path)
    fit(package, module, [callback])
    log = callback.scope.log
    assert log.header.blocks == ["net.blocks.0", "net.blocks.1", "net.blocks.2"]
    assert [(row.epoch, row.step) for row in log.epochs] == [(0, 0), (1, 3), (2, 6), (3, 9)]
    assert [row.test_accuracy for row in log.epochs[1:]] == pytest.approx(module.accuracies, rel=1e-6)
    losses = [sum(epoch) / len(epoch) for epoch in module.losses]
    assert [row.train_loss for row in log.epochs[1:]] == pytest.approx(losses, rel=1e-5)
    assert [row.lr for row in log.epochs[1:]] == module.rates[2::3] == [0.01, 0.005, 0.0025]
    audited = cs.audit_model(module, loader=samples(), init=start, **FAST).claims[0].cell.runs[0].epochs[0]
    assert log.last.reference == audited.reference
    assert log.last.movement == audited.movement
    assert log.end.status == "finished"
    assert callback.audit(baseline=0.1).claims[0].cell.method == "model"
    assert cs.load_logs(tmp_path).logs[0].epochs == log.epochs


def test_the_training_is_the_same_with_and_without():
    alone, watched = module_of("lightning.pytorch"), module_of("lightning.pytorch")
    fit("lightning.pytorch", alone, [])
    fit("lightning.pytorch", watched, [callback_of()])
    for name, value in alone.named_parameters():
        assert torch.equal(value, dict(watched.named_parameters())[name]), name


def explode(net):
    plain = net.blocks[1].forward
    net.blocks[1].forward = lambda h: 1000 * plain(h)


@BOTH
def test_an_alert_stops_the_trainer_by_its_own_means(package):
    heard = []
    callback = callback_of(stop=True, on_alert=heard.append)
    trainer = fit(package, module_of(package, 1, explode), [callback], max_epochs=9)
    assert trainer.should_stop
    assert trainer.current_epoch == 2
    assert callback.scope.log.end.status == "stopped"
    assert "scale" in {alert.check for alert in heard}


def test_an_error_is_in_the_log_and_passed_on():
    def fail(net):
        raise RuntimeError("the loader broke")

    callback = callback_of()
    with pytest.raises(RuntimeError, match="the loader broke"):
        fit("lightning.pytorch", module_of("lightning.pytorch", 1, fail), [callback])
    end = callback.scope.log.end
    assert (end.status, end.epoch, end.reason) == ("failed", 1, "RuntimeError: the loader broke")


def test_accumulated_batches_are_one_step_and_an_old_accuracy_is_not_taken_again():
    module = module_of("lightning.pytorch")
    callback = callback_of()
    fit("lightning.pytorch", module, [callback], accumulate_grad_batches=3, check_val_every_n_epoch=2, max_epochs=4)
    log = callback.scope.log
    assert [row.step for row in log.epochs] == [0, 1, 2, 3, 4]
    second, fourth = module.accuracies
    assert [log.epochs[2].test_accuracy, log.epochs[4].test_accuracy] == pytest.approx([second, fourth], rel=1e-6)
    # Nobody validated after odd epochs: the accuracy is that on the 48 probe samples, not the last of the 32.
    for row in (log.epochs[1], log.epochs[3]):
        assert row.test_accuracy * 48 == pytest.approx(round(row.test_accuracy * 48), abs=1e-9)
        assert row.test_accuracy != pytest.approx(second, rel=1e-6)


def test_rows_go_to_a_sink(tmp_path):
    with cs.log_to("csv", tmp_path) as sink:
        callback = callback_of(on_row=sink)
        fit("lightning.pytorch", module_of("lightning.pytorch"), [callback])
    lines = (tmp_path / "csv" / f"{callback.scope.log.spec.run_id}.csv").read_text().splitlines()
    assert len(lines) == 1 + len(callback.scope.log.epochs)
