"""The Hugging Face callback in real trainers: rows, stop, and a training that is left alone."""

import pytest
import torch
from scope.nets import Net, samples
from torch import nn
from torch.nn import functional

import creditscope as cs

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]
FAST = {"redraws": 9, "directions": 1}


class Labelled(nn.Module):
    """A net in the manner of Hugging Face: named inputs, and a loss when there are labels."""

    def __init__(self):
        super().__init__()
        self.net = Net()
        self.net.dropout = nn.Identity()

    def forward(self, x, labels=None):
        logits = self.net(x)
        if labels is None:
            return {"logits": logits}
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def items(n=48, seed=1):
    x, y = samples(n, seed=seed)
    return [{"x": x[place], "labels": y[place]} for place in range(n)]


def probe():
    x, y = samples()
    return {"x": x, "labels": y}


def train(model, callbacks, folder, **options):
    from transformers import Trainer, TrainingArguments

    defaults = {
        "num_train_epochs": 3,
        "per_device_train_batch_size": 16,
        "save_strategy": "no",
        "report_to": [],
        "eval_strategy": "epoch",
        "logging_strategy": "epoch",
        "use_cpu": True,
        "disable_tqdm": True,
        "learning_rate": 0.01,
        "label_names": ["labels"],
    }
    trainer = Trainer(
        model,
        TrainingArguments(str(folder), **(defaults | options)),
        train_dataset=items(),
        eval_dataset=items(32, seed=2),
        callbacks=callbacks,
        compute_metrics=lambda seen: {"accuracy": float((seen.predictions.argmax(1) == seen.label_ids).mean())},
    )
    trainer.train()
    return trainer


def callback_of(accuracy="eval_accuracy", **options):
    from creditscope.integrations.transformers import CreditScopeCallback

    return CreditScopeCallback(
        lambda model: cs.watch(model, probe=probe(), budget=1.0, **FAST, **options), accuracy=accuracy
    )


def test_the_log_has_the_trainers_numbers_and_the_audit_of_that_moment(tmp_path):
    model, callback = Labelled(), callback_of(out=tmp_path / "runs")
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    trainer = train(model, [callback], tmp_path, lr_scheduler_type="constant")
    log, history = callback.scope.log, trainer.state.log_history
    assert log.header.blocks == ["net.blocks.0", "net.blocks.1", "net.blocks.2"]
    assert [(row.epoch, row.step) for row in log.epochs] == [(0, 0), (1, 3), (2, 6), (3, 9)]
    accuracies = [entry["eval_accuracy"] for entry in history if "eval_accuracy" in entry]
    losses = [entry["loss"] for entry in history if "loss" in entry]
    assert [row.test_accuracy for row in log.epochs[1:]] == accuracies
    assert [row.train_loss for row in log.epochs[1:]] == losses
    assert {row.lr for row in log.epochs[1:]} == {0.01}
    audited = cs.audit_model(model, loader=probe(), init=start, **FAST).claims[0].cell.runs[0].epochs[0]
    assert log.last.reference == audited.reference
    assert log.last.movement == audited.movement
    assert log.end.status == "finished"
    assert callback.audit().claims[0].cell.method == "model"


def test_the_training_is_the_same_with_and_without(tmp_path):
    alone, watched = Labelled(), Labelled()
    train(alone, [], tmp_path / "alone")
    train(watched, [callback_of()], tmp_path / "watched")
    for name, value in alone.named_parameters():
        assert torch.equal(value, dict(watched.named_parameters())[name]), name


@pytest.mark.parametrize(("evaluates", "logs"), [("no", "epoch"), ("no", "no"), ("epoch", "no")])
def test_a_look_is_taken_after_every_epoch_whatever_the_trainer_does_then(tmp_path, evaluates, logs):
    callback = callback_of(accuracy=None)
    trainer = train(Labelled(), [callback], tmp_path, eval_strategy=evaluates, logging_strategy=logs)
    log = callback.scope.log
    assert [row.epoch for row in log.epochs] == [0, 1, 2, 3]
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert [row.train_loss for row in log.epochs[1:]] == (losses or [None] * 3)


def test_an_alert_stops_the_trainer_by_its_own_means(tmp_path):
    from transformers import TrainerCallback

    class Explode(TrainerCallback):
        def on_epoch_begin(self, args, state, control, model, **rest):
            if int(state.epoch) == 1:
                plain = model.net.blocks[1].forward
                model.net.blocks[1].forward = lambda h: 1000 * plain(h)

    callback = callback_of(stop=True, on_alert=lambda alert: None)
    trainer = train(Labelled(), [Explode(), callback], tmp_path, num_train_epochs=9)
    assert trainer.state.epoch == 2
    assert callback.scope.log.end.status == "stopped"
    assert callback.scope.stopped.check == "scale"


def test_a_transformer_built_from_a_config(tmp_path):
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    from creditscope.integrations.transformers import CreditScopeCallback

    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = BertForSequenceClassification(BertConfig(vocab_size=12, max_position_embeddings=4, **sizes))
    tokens = torch.randint(12, (16, 4))
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": (tokens[:, 0] > 5).long()}
    callback = CreditScopeCallback(lambda model: cs.watch(model, probe=batch, budget=0.0, **FAST))
    settings = TrainingArguments(
        str(tmp_path), num_train_epochs=2, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True
    )
    items = [{name: part[place] for name, part in batch.items()} for place in range(16)]
    Trainer(model, settings, train_dataset=items, callbacks=[callback]).train()
    log = callback.scope.log
    assert log.header.blocks == ["bert.encoder.layer.0", "bert.encoder.layer.1"]
    assert [row.epoch for row in log.epochs] == [0, 2]
    assert log.end.status == "finished"
    assert all(value > 0 for value in log.last.movement.weights.values())
