"""Descriptions of the five rules that logs of version 1 and the published layouts may hold: those logs carry none."""

from creditscope.records.rule_card import RuleCard, Sketch
from creditscope.records.spec import RunSpec

_BP = RuleCard(
    name="bp",
    family="signal",
    formula="c_l = g_l: the true gradient, carried back exactly",
    paper="Rumelhart, Hinton & Williams 1986",
    penalty="global",
    learns=False,
    sketch=Sketch(text="exact gradient, block to block", route="chain"),
)
_FA = RuleCard(
    name="fa",
    family="signal",
    formula="the backward pass of BP with every weight W replaced by a fixed random B of its shape",
    paper="Lillicrap et al. 2016",
    penalty="local",
    learns=False,
    options={"exact_head": False},
    sketch=Sketch(
        text="random backward weight in every linear map, head included",
        route="chain",
        random=("head", "norm", "block"),
    ),
)
_FA_EXACT_HEAD = _FA.model_copy(
    update={
        "formula": "the backward pass of BP with every weight W but the head's replaced by a fixed random B of its "
        "shape",
        "options": {"exact_head": True},
        "sketch": Sketch(text="exact through the head, then random backward weights", route="chain", random=("block",)),
    }
)
_FA_BLOCK = RuleCard(
    name="fa-block",
    family="signal",
    formula="c_L = g_L; c_l = c_{l+1}·M_l with fixed random M_l",
    paper="after Lillicrap et al. 2016; the FA of arXiv 2606.21126",
    penalty="local",
    learns=False,
    sketch=Sketch(text="exact at the last state, then one random matrix a block", route="chain", random=("block",)),
)
_DFA = RuleCard(
    name="dfa",
    family="signal",
    formula="c_{l+1} = e·B_l, c_0 = e·B_0 with fixed random B_l",
    paper="Nøkland 2016",
    penalty="local",
    learns=False,
    options={"own_embedding": False, "scale": 1.0, "dist": "normal"},
    sketch=Sketch(text="error times a random matrix, straight to each block", route="direct"),
)
_KNOWN = {card.name: card for card in (_BP, _FA, _FA_BLOCK, _DFA)}


def card_of(spec: RunSpec) -> RuleCard:
    """What a rule says of itself, for a log without it; of an unknown rule, its name alone.

    Args:
        spec: The run.
    """
    if spec.rule == "fa" and (spec.options or {}).get("exact_head") is True:
        return _FA_EXACT_HEAD
    card = _KNOWN.get(spec.rule, RuleCard(name=spec.rule))
    if spec.credit_norm == "rms" and card.formula is not None:
        return card.model_copy(update={"formula": f"{card.formula}; each sample's credit divided by its RMS"})
    return card
