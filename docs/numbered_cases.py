"""The cases that version 1 of ``standard`` had wrong: each a small training, or logs that were built from real ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from case_logs import STUDIES, stored
from page_data import runs

import creditscope as cs
from creditscope.protocol.audit import JudgedCell
from creditscope.protocol.check import Outcome
from creditscope.records.measured import NullTest
from creditscope.records.provenance import OFF
from creditscope.records.rows import ProbeRow

VERSIONS = ("standard@1", "standard")
# Cosines of every deep block, on each of three seeds.
ONE_GOOD = (0.30, -0.06, -0.06)
# Deep blocks that are tested in the case of many blocks, and the cosine of the last one on each seed.
MANY = 10
LAST_OF_MANY = (0.02, 0.06, 0.10)
TF32_PHI = 0.998


@dataclass(frozen=True)
class Case:
    """One case.

    Args:
        number: Of the list that it comes from.
        title: In a few words.
        made: How it is trained or built.
        claim: The method that is judged.
        logs: Its logs, with all that it is compared with.
        checks: The checks that it is about.
        held: The tests that hold it.
    """

    number: int
    title: str
    made: str
    claim: str
    logs: Sequence[cs.RunLog]
    checks: tuple[str, ...]
    held: tuple[str, ...]

    @cached_property
    def _judged(self) -> dict[str, JudgedCell]:
        found = {}
        for protocol in VERSIONS:
            claims = cs.audit(self.logs, protocol).claims
            (found[protocol],) = [cell for cell in claims if cell.cell.method == self.claim]
        return found

    def judged(self, protocol: str) -> JudgedCell:
        """The claim under a version of the standard.

        Args:
            protocol: ``standard@1`` or ``standard``.
        """
        return self._judged[protocol]

    def outcome(self, protocol: str, check: str) -> Outcome:
        """What one check says of the claim."""
        return next(outcome for outcome in self.judged(protocol).outcomes if outcome.name == check)


def constant() -> list[cs.RunLog]:
    """The logs of the noise study, in which every answer of the claim is the class that most test images have."""
    return [_all_one_class(log) if log.spec.method == "bp" else log for log in stored("noise")]


def _all_one_class(log: cs.RunLog) -> cs.RunLog:
    assert log.end is not None
    assert log.end.labels is not None
    labels = np.frombuffer(bytes.fromhex(log.end.labels), dtype=">u2")
    counts = np.bincount(labels)
    right = labels == counts.argmax()
    end = log.end.model_copy(update={"test_accuracy": right.mean(), "correct": np.packbits(right).tobytes().hex()})
    accuracies = {"test_accuracy": float(right.mean()), "balanced_accuracy": 1 / len(counts)}
    return replace(log, epochs=(log.epochs[-1].model_copy(update=accuracies),), end=end)


def study(claim: str) -> list[cs.RunLog]:
    """A method of the committed runs of 100 epochs, its twin, the readout, and backprop with its twin."""
    names = dict.fromkeys((claim, f"{claim}@frozen", "bp", "bp@frozen", "bp@readout"))
    return [log for name in names for log in runs(name, 100)]


def edited(logs: Sequence[cs.RunLog], method: str, change: Callable[[cs.RunLog, int], cs.RunLog]) -> list[cs.RunLog]:
    """Logs of which those of one method are changed; the change hears the place of the seed."""
    places = {log.name: at for at, log in enumerate(log for log in logs if log.spec.method == method)}
    return [change(log, places[log.name]) if log.name in places else log for log in logs]


def last_probe(log: cs.RunLog, **changes: object) -> cs.RunLog:
    """A log with fields of its last probe changed."""
    return replace(log, probes=(*log.probes[:-1], log.probes[-1].model_copy(update=changes)))


def deep_cosines(log: cs.RunLog, values: Sequence[float]) -> cs.RunLog:
    """A log whose deep blocks have other cosines; the redraws of its null stay."""
    row, probe = log.epochs[-1], log.probes[-1]
    assert row.cosine is not None
    assert probe.null is not None
    mean = [*row.cosine.mean[:2], *values]
    changed = row.model_copy(update={"cosine": row.cosine.model_copy(update={"mean": mean})})
    null = probe.null.model_copy(update={"observed": [*probe.null.observed[:2], *values]})
    return last_probe(replace(log, epochs=(*log.epochs[:-1], changed)), null=null)


def one_good_seed() -> list[cs.RunLog]:
    """fa, with one seed at .30 in every deep block and two at −.06."""
    return edited(study("fa"), "fa", lambda log, at: deep_cosines(log, [ONE_GOOD[at]] * 3))


def tie() -> list[cs.RunLog]:
    """fa with .47 of the test images right and its twin with .45; what the twin lacks are other images on each seed."""

    def right(log: cs.RunLog, first: int, count: int, missing: range) -> cs.RunLog:
        assert log.end is not None
        bits = np.zeros(10_000, dtype=bool)
        bits[first : first + count] = True
        bits[list(missing)] = False
        share = int(bits.sum()) / len(bits)
        end = log.end.model_copy(update={"test_accuracy": share, "correct": np.packbits(bits).tobytes().hex()})
        return replace(
            log, epochs=(*log.epochs[:-1], log.epochs[-1].model_copy(update={"test_accuracy": share})), end=end
        )

    logs = edited(study("fa"), "fa", lambda log, at: right(log, 0, 4700, range(0)))
    return edited(logs, "fa@frozen", lambda log, at: right(log, 0, 4700, range(200 * at, 200 * at + 200)))


def many_blocks() -> list[cs.RunLog]:
    """fa with eleven blocks, of which ten are tested: all at 0 but one, which is at .06 in the mean."""
    logs = [_deeper(log, MANY + 1) for log in study("fa")]
    return edited(logs, "fa", lambda log, at: _cosines_of_many(log, LAST_OF_MANY[at]))


def _deeper(log: cs.RunLog, blocks: int) -> cs.RunLog:
    """A log as of a deeper net: the last block stands there as often as need be."""
    more = blocks - (log.spec.depth or 0)
    header = log.header.model_copy(
        update={
            "spec": log.spec.model_copy(update={"depth": blocks}),
            "exact": [*(log.header.exact or []), *[(log.header.exact or [False])[-1]] * more],
        }
    )
    row = log.epochs[-1]
    assert row.movement is not None
    movement = row.movement.model_copy(
        update={
            "blocks": [*row.movement.blocks, *[row.movement.blocks[-1]] * more],
            "trainable": [*row.movement.trainable, *[row.movement.trainable[-1]] * more],
        }
    )
    lists = {name: _longer(getattr(row, name), more) for name in ("gain", "growth", "branch")}
    per_state = {
        name: part.model_copy(update={"median": _longer(part.median, more)})
        for name in ("hidden", "reference")
        if (part := getattr(row, name)) is not None
    }
    cosine = row.cosine
    if cosine is not None:
        fields = ("mean", "sd", "n", "n_undefined", "status")
        cosine = cosine.model_copy(update={name: _longer(getattr(cosine, name), more) for name in fields})
    row = row.model_copy(
        update={**lists, **per_state, "cosine": cosine, "cosine_published": None, "movement": movement}
    )
    return replace(log, header=header, epochs=(row,), probes=(_deeper_probe(log.probes[-1], more),))


def _deeper_probe(probe: ProbeRow, more: int) -> ProbeRow:
    """The probe as of a deeper net; the new blocks have the same redraws in another order."""
    null, fidelity, rng = probe.null, probe.fidelity, np.random.default_rng(0)
    if null is not None:
        fields = {name: _longer(getattr(null, name), more) for name in ("observed", "p", "mean", "sd")}
        draws = null.draws and [*null.draws, *(rng.permutation(null.draws[-1]).tolist() for _ in range(more))]
        null = NullTest(**fields, redraws=null.redraws, kind=null.kind, draws=draws)
    if fidelity is not None:
        fidelity = fidelity.model_copy(update={"median": _longer(fidelity.median, more)})
    gradient = _longer(probe.gradient_cosine, more)
    return ProbeRow(epoch=probe.epoch, null=null, fidelity=fidelity, gradient_cosine=gradient)


def _longer(values: Sequence[object] | None, more: int) -> list[object] | None:
    return None if values is None else [*values, *[values[-1]] * more]


def _cosines_of_many(log: cs.RunLog, last: float) -> cs.RunLog:
    null = log.probes[-1].null
    assert null is not None
    observed = [*null.observed[:2], *[0.0] * (MANY - 1), last]
    return last_probe(log, null=null.model_copy(update={"observed": observed}))


def in_tf32() -> list[cs.RunLog]:
    """bp as measured on a GPU before probes took TF32 off: φ = .998, and nothing said of TF32."""

    def measured(log: cs.RunLog, at: int) -> cs.RunLog:
        said = {name: value for name, value in log.header.provenance.items() if name != OFF}
        fidelity = log.probes[-1].fidelity
        assert fidelity is not None
        low = fidelity.model_copy(update={"median": [TF32_PHI] * len(fidelity.median)})
        return last_probe(replace(log, header=log.header.model_copy(update={"provenance": said})), fidelity=low)

    return edited(study("bp"), "bp", measured)


def without_readout(claim: str) -> list[cs.RunLog]:
    """A penalised method of the committed runs of 30 epochs, beside its twin and the control alone."""
    twin = claim.split("+")[0] + "@frozen"
    return [log for name in (claim, twin, "bp", "bp@frozen") for log in runs(name, 30)]


def _test(name: str) -> str:
    return f"tests/docs/test_cases.py::test_{name}"


@cache
def cases() -> tuple[Case, ...]:
    """Every case that ends in a verdict, in the order of the list."""
    return (
        Case(
            1,
            "A net that learned nothing",
            f"{STUDIES['noise'].made} Every run ends as a constant predictor, or nearly so; the frozen twin fits the "
            "noise and is worse for it.",
            "bp",
            stored("noise"),
            ("learning", "depth"),
            (_test("what_is_trained_anew"),),
        ),
        Case(
            1,
            "Three constant predictors",
            "Built: the logs of the study above, in which `bp` answers with the class that most test images have.",
            "bp",
            constant(),
            ("learning", "depth"),
            (_test("constant_predictors_are_at_chance"),),
        ),
        Case(
            2,
            "Credit that a narrow net cannot tell from chance",
            STUDIES["xor"].made,
            "fa-block",
            stored("xor"),
            ("direction", "depth"),
            (
                _test("what_is_trained_anew"),
                "tests/protocol/test_calibration.py::"
                "test_direction_fires_on_hardly_any_method_whose_every_block_is_truly_at_15_hundredths",
            ),
        ),
        Case(
            3,
            "One seed that aligns speaks for two that do not",
            "Built: the committed runs of `fa` on CIFAR-10, in which the deep blocks of the three seeds have cosines "
            f"of {', '.join(f'{value:+.2f}' for value in ONE_GOOD)}; everything else is as it was measured.",
            "fa",
            one_good_seed(),
            ("direction",),
            (_test("seeds_that_disagree_do_not_pass"),),
        ),
        Case(
            4,
            "Backprop on a task that needs no depth",
            STUDIES["synthetic"].made,
            "bp",
            stored("synthetic"),
            ("depth",),
            (_test("what_is_trained_anew"),),
        ),
        Case(
            4,
            "Backprop at 1.000 beside a twin at 1.000",
            STUDIES["clusters"].made,
            "bp",
            stored("clusters"),
            ("depth",),
            (_test("what_is_trained_anew"),),
        ),
        Case(
            5,
            "A frozen twin that is weaker than training nothing but the readout",
            "The committed runs of `dfa` on CIFAR-10, 100 epochs, as they are.",
            "dfa",
            study("dfa"),
            ("direction", "depth"),
            (_test("the_readout_decides"),),
        ),
        Case(
            6,
            "A net whose only deep block has exact credit by construction",
            STUDIES["two-blocks"].made,
            "fa-block",
            stored("two-blocks"),
            ("direction",),
            (_test("what_is_trained_anew"), _test("a_rule_that_is_exact_everywhere_proves_nothing")),
        ),
        *(
            Case(
                7,
                f"What is said of a margin {where}",
                f"The committed runs of `{claim}` on CIFAR-10, 30 epochs, beside their frozen twin alone.",
                claim,
                without_readout(claim),
                ("depth",),
                (_test("words_of_a_margin"),),
            )
            for where, claim in (("between 0 and 2 pp", "dfa-rms+pen0.01"), ("that holds 2 pp", "dfa-rms+pen0.001"))
        ),
        Case(
            8,
            "A margin of exactly 2 pp",
            "Built: the committed runs of `fa`, with 4,700 of 10,000 test images right on every seed, and 4,500 by the "
            "twin.",
            "fa",
            tie(),
            ("depth",),
            (_test("a_tie_is_decided_on_counts"),),
        ),
        Case(
            10,
            "More blocks than redraws can serve one by one",
            f"Built: the committed runs of `fa`, with {MANY} tested blocks: all at 0 but one, which lies at "
            f"{', '.join(f'{value:+.2f}' for value in LAST_OF_MANY)} on the three seeds.",
            "fa",
            many_blocks(),
            ("direction",),
            (_test("many_blocks_and_advice_that_fits"),),
        ),
        Case(
            11,
            "A reference that was measured in TF32",
            f"Built: the committed runs of `bp`, with φ = {TF32_PHI} at every state, and without the note that TF32 "
            "was off in the probe. What a ResNet-18 gives on a GPU is not measured here.",
            "bp",
            in_tf32(),
            ("fidelity",),
            (
                _test("tf32_asks_for_another_measurement"),
                "tests/probes/test_precision.py::"
                "test_every_probed_pass_runs_in_full_precision_and_the_settings_come_back",
            ),
        ),
    )
