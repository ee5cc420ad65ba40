"""RunSpec: everything that defines one training run, and the three keys by which runs are grouped."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_serializer,
    model_validator,
)

from creditscope.records.method import (
    FORMER,
    RULE_NAME,
    CreditNorm,
    Method,
    Option,
    TrainLast,
    literal,
    option_text,
    parse_method,
)
from creditscope.records.spec_parts import (
    MAX_COUNT,
    MAX_DEPTH,
    MAX_EPOCHS,
    MAX_NAME,
    MAX_WIDTH,
    DataSpec,
    FeedbackSpec,
    Frozen,
    OptimiserSpec,
    ProbeSpec,
    Tuning,
    without_later,
)

# Fields that logs of version 1 do not have, and then what else even a run of the engine may lack.
_LATER = ("recipe", "options", "fixed_feedback", "architecture", "anchors", "tuned")
_NOT_ALWAYS = ("injection", "feedback", "width", "terminal_ln", "classes", *_LATER)


class RunSpec(Frozen):
    """One run. Only ``rule`` and ``origin`` are always known; an imported log may lack the rest (None).

    Args:
        model: ``resmlp``, ``mlp``, ``vit-mini``, or the name a user gave a model of their own.
        width: Width d of the residual stream.
        depth: Number of blocks L.
        terminal_ln: Whether a LayerNorm stands between the last state and the head.
        view: How a state becomes one vector per sample: ``flat`` for vectors, ``cls``, ``mean`` or ``all`` for tokens.
        data: The data set.
        classes: Number of classes C.
        rule: Name of the credit rule; any text in a log from elsewhere.
        options: Options of the rule that differ from their defaults; None: none does.
        anchors: Batches of true backprop in every epoch; None: none.
        fixed_feedback: True where a state that would learn stays at its start; None: it does as the rule says.
        credit_norm: ``rms`` when each sample's credit is divided by its RMS.
        penalty: λ of the residual-branch penalty.
        train_last: How many of the last blocks train.
        train_embedding: Whether the embedding trains.
        targets: ``labels``, or ``random`` for the random-target control.
        seed: Seed of everything random in this run.
        epochs: Epochs planned.
        batch: Batch size; the last short batch is dropped.
        optimiser: The optimiser and its constants.
        schedule: ``cosine`` to 0 stepped per epoch, or ``constant``.
        augment: ``crop4+flip`` or ``none``.
        dtype: Dtype of parameters and training arithmetic.
        matmul: Precision of float32 matrix products: ``float32`` or ``tf32``.
        injection: In words, where the rule's credit enters.
        feedback: How the feedback was drawn.
        probe: On what the probes measure.
        architecture: Options of the model that differ from their defaults; None: none does.
        tuned: How the learning rate was chosen; None: it was set. Runs tuned alike match whatever rates were best.
        recipe: Of a run from elsewhere, its optimiser, schedule and augmentation in its owner's words.
        origin: ``engine`` (we trained it), ``watch`` (we watched it), ``import`` (a foreign log).
    """

    rule: str = Field(max_length=MAX_NAME)
    origin: Literal["engine", "watch", "import"]
    model: str | None = Field(default=None, max_length=MAX_NAME)
    width: int | None = Field(default=None, gt=0, le=MAX_WIDTH)
    depth: int | None = Field(default=None, gt=0, le=MAX_DEPTH)
    terminal_ln: bool | None = None
    view: Literal["flat", "cls", "mean", "all"] | None = None
    data: DataSpec | None = None
    classes: int | None = Field(default=None, gt=1, le=MAX_COUNT)
    credit_norm: CreditNorm | None = None
    penalty: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    train_last: TrainLast | None = None
    train_embedding: bool | None = None
    targets: Literal["labels", "random"] | None = None
    seed: int | None = Field(default=None, ge=-MAX_COUNT, le=MAX_COUNT)
    epochs: int | None = Field(default=None, ge=0, le=MAX_EPOCHS)
    batch: int | None = Field(default=None, gt=0, le=MAX_COUNT)
    optimiser: OptimiserSpec | None = None
    schedule: Literal["cosine", "constant"] | None = None
    augment: Literal["crop4+flip", "none"] | None = None
    dtype: Literal["float32", "float64", "bfloat16", "float16"] | None = None
    matmul: Literal["float32", "tf32"] | None = None
    injection: str | None = None
    feedback: FeedbackSpec | None = None
    probe: ProbeSpec | None = None
    recipe: dict[str, str] | None = None
    options: dict[str, StrictBool | StrictInt | StrictFloat | StrictStr] | None = Field(default=None, min_length=1)
    fixed_feedback: Literal[True] | None = None
    anchors: int | None = Field(default=None, gt=0)
    architecture: dict[str, StrictBool | StrictInt | StrictFloat | StrictStr] | None = Field(default=None, min_length=1)
    tuned: Tuning | None = None

    def __hash__(self) -> int:
        return hash((self.rule, self.credit_norm, self.penalty, self.train_last, self.seed, self.model, self.epochs))

    @model_validator(mode="before")
    @classmethod
    def _former_names(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("rule") in FORMER:
            rule, options = FORMER[data["rule"]]
            return {**data, "rule": rule, "options": options}
        return data

    @model_validator(mode="after")
    def _engine_runs_are_complete(self) -> Self:
        if self.origin != "engine":
            return self
        if not RULE_NAME.fullmatch(self.rule):
            raise ValueError(f"rule {self.rule!r}: wanted lower-case letters, digits and dashes")
        unknown = [name for name in type(self).model_fields if getattr(self, name) is None and name not in _NOT_ALWAYS]
        if unknown:
            raise ValueError(f"a run of the engine must know {', '.join(unknown)}")
        if isinstance(self.train_last, int) and self.depth is not None and not 0 <= self.train_last <= self.depth:
            raise ValueError(f"@last{self.train_last}: wanted 0 to {self.depth} blocks, the model's depth")
        if not self.train_embedding and self.train_last != 0:
            raise ValueError(f"an embedding is frozen only with every block, got train_last {self.train_last}")
        return self

    @property
    def method(self) -> str:
        """The method name, in the grammar of ``records.method`` (for a foreign rule, its own name)."""
        return str(self.as_method)

    @property
    def model_text(self) -> str | None:
        """The model with its options, such as ``mlp(activation=tanh)``."""
        if self.model is None or not self.architecture:
            return self.model
        options = (f"{name}={option_text(value)}" for name, value in sorted(self.architecture.items()))
        return f"{self.model}({', '.join(options)})"

    @property
    def as_method(self) -> Method:
        """The method, read."""
        return Method(
            rule=self.rule,
            credit_norm=self.credit_norm or "none",
            penalty=self.penalty or 0.0,
            train_last="all" if self.train_last is None or self.train_last == self.depth else self.train_last,
            train_embedding=self.train_embedding is not False,
            options=self.options or {},
            fixed_feedback=self.fixed_feedback is True,
            anchors=self.anchors or 0,
        )

    @property
    def is_baseline(self) -> bool:
        """Whether no block of this run trains: such runs are compared with, never judged."""
        return self.train_last == 0

    @property
    def run_id(self) -> str:
        """The file stem of the run: method, seed and a hash of everything that defines it."""
        method = self.method
        for former, (rule, options) in FORMER.items():
            head = str(Method(rule, options=options))
            method = former + method.removeprefix(head) if method.startswith(head) else method
        stem = re.sub(r"\(([^)]*)\)", r".\1", method)  # parentheses mean something to a shell
        return f"{stem}-s{self.seed}-{digest(self._identity())[:8]}"

    @property
    def stack_key(self) -> str:
        """What must agree for two runs to be trained as one stack: shapes, data, batches and schedule."""
        shared = ("model", "width", "depth", "terminal_ln", "view", "classes", "epochs", "batch", "schedule")
        rest = ("augment", "dtype", "matmul", "origin")
        key = {name: getattr(self, name) for name in (*shared, *rest)}
        if self.architecture is not None:
            key["architecture"] = self.architecture
        optimiser = self.optimiser.model_dump(exclude={"lr"}) if self.optimiser else None
        return digest(key | {"data": _dump(self.data), "probe": _dump(self.probe), "optimiser": optimiser})

    @property
    def match_key(self) -> str:
        """What must agree with a matched baseline: all but seed, probes and which parts train.

        The penalty is ignored for local rules (frozen blocks have no branch to keep small) and must agree for
        BP, where it joins the global loss. Where the learning rate was tuned the tuning must agree, not what it chose;
        at a rate that it did not choose a run is not tuned.
        """
        skip = {"train_last", "train_embedding", "seed", "feedback", "probe", "injection", "matmul"}
        if self.rule != "bp":
            skip.add("penalty")
        dump = self.model_dump(mode="json", exclude=skip)
        if self.tuned is not None and self.optimiser is not None and self.optimiser.lr == self.tuned.best:
            del dump["tuned"]["accuracy"], dump["optimiser"]["lr"]
        return digest(dump)

    @property
    def cell_key(self) -> str:
        """All but the seed and what follows from it: runs with one cell key are repetitions."""
        return digest(self._identity() | {"seed": None})

    def states(self, name: str) -> bool:
        """Whether a field is known, as a value of ours or in its owner's words.

        Args:
            name: Of the field.
        """
        return getattr(self, name) is not None or name in (self.recipe or {})

    @model_serializer(mode="wrap")
    def _without_later_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # So a run without one keeps its log, its names and its keys.
        return without_later(handler(self), _LATER)

    def _identity(self) -> dict[str, Any]:
        dump = self.model_dump(mode="json")
        if self.origin == "engine":
            # Both follow from the rule and the seed, and are filled in only when training starts.
            dump |= {"feedback": None, "injection": None}
        elif dump["feedback"] is not None:
            dump["feedback"] |= {"seed": None, "hash": None}
        if dump["train_last"] == self.depth:
            dump["train_last"] = "all"
        # As version 1 spelt it: a run keeps its file name and its keys for ever.
        if dump["probe"] is not None:
            dump["probe"]["dear"] = dump["probe"].pop("epochs")
        for former, (rule, options) in FORMER.items():
            if (dump["rule"], dump.get("options")) == (rule, options):
                dump = {key: value for key, value in dump.items() if key != "options"} | {"rule": former}
        return dump


def engine_spec(method: str | Method, **fields: Any) -> RunSpec:
    """Build the spec of a run for our engine from a method and the remaining fields.

    Args:
        method: For example ``dfa-rms+pen0.01``, or such a name as it was read.
        fields: Other fields of ``RunSpec``.
    """
    parsed = parse_method(method) if isinstance(method, str) else method
    return RunSpec(
        origin="engine",
        rule=parsed.rule,
        credit_norm=parsed.credit_norm,
        penalty=parsed.penalty,
        train_last=parsed.train_last,
        train_embedding=parsed.train_embedding,
        options=_typed(parsed.options) if isinstance(method, str) else dict(parsed.options) or None,
        fixed_feedback=parsed.fixed_feedback or None,
        anchors=parsed.anchors or None,
        **fields,
    )


def _typed(options: Mapping[str, Option]) -> dict[str, Option] | None:
    return {key: literal(value) if isinstance(value, str) else value for key, value in options.items()} or None


def digest(value: Any) -> str:
    """SHA-256 of a value's canonical JSON, in hexadecimal."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _dump(record: BaseModel | None) -> dict[str, Any] | None:
    return record.model_dump(mode="json") if record is not None else None
