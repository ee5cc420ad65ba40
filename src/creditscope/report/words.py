"""What the page asks, how to read the answer, and what to do about it: words only, no numbers of any result."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """The words around one check.

    Args:
        title: The heading.
        question: What the check asks.
        healthy: How to read the plot.
        advice: What to do when it fires.
    """

    title: str
    question: str
    healthy: str
    advice: str


CHECKS: dict[str, Words] = {
    "scale": Words(
        "Scale",
        "Does any block blow the residual stream up?",
        "Healthy blocks hand on a stream of about the size they got: growth stays near 1. A line that climbs past "
        "the threshold means that one block drowns all that came before it.",
        "Contain the stream before you read any cosine: a penalty on the residual branch, a smaller step, or a "
        "normaliser after the add. Then judge the depth again: a contained stream alone does not show learning.",
    ),
    "reference": Words(
        "Reference",
        "Is there still a true gradient to be compared with?",
        "The gain says how much of the output error reaches a state by true backpropagation. Where it falls below the "
        "floor, the gradient is too small to be a usable reference for a clamped cosine.",
        "Do not report a clamped cosine here. Give the unclamped one with its fidelity, and find out why the "
        "gradient vanished: most often the stream grew in front of a terminal LayerNorm.",
    ),
    "depth": Words(
        "Depth",
        "Do the trained blocks beat the same net with its blocks frozen?",
        "Each line is a run's accuracy less that of its twin whose blocks stay as they were drawn. Below the margin "
        "the blocks add nothing that the embedding and the readout would not reach alone.",
        "Report the frozen twin beside the accuracy. If the twin is as good, the claim is about a shallow net: say "
        "so, or find the block that destroys what the embedding gives.",
    ),
    "fidelity": Words(
        "Fidelity",
        "Is the reference gradient in the run's own precision the true one?",
        "The cosine error is what rounding alone can do to any cosine with this gradient. Below the line the "
        "reference is good enough to judge by.",
        "Measure the reference again in float64; cosines taken in this precision cannot be used.",
    ),
    "direction": Words(
        "Direction",
        "Does the credit that reaches the deep blocks point where the gradient points?",
        "Each line is the mean cosine over samples. The band holds about 98 % of what the same net shows with "
        "freshly drawn feedback: inside it, alignment is luck. Exact-by-construction states lie at 1 and do not count.",
        "The deep blocks are trained by noise. Do not quote an aggregate Γ, which the first state can carry alone; "
        "report the cosine of each block with its null.",
    ),
    "movement": Words(
        "Movement",
        "Did every block that should train leave its initial weights?",
        "Shown is the largest movement among a block's weight matrices, weight decay not counted. A block at the "
        "bottom of the plot never learned.",
        "Look for a block without credit: a detached tensor, a missing parameter group, a credit of exactly zero.",
    ),
    "advisory": Words(
        "Advisory",
        "What kind of failure is it, and what do the blocks add?",
        "Probe accuracy shows how well a linear readout does on each state: it should rise with depth. Drift near 1 "
        "means that all samples pull the same way. These two never count in the verdict.",
        "Where probe accuracy falls from h_0 to h_L the blocks destroy information; compare with the frozen twin.",
    ),
}
ADVISORY = ("drift", "representation")
SYMBOLS = {"passes": "✓", "fires": "✕", "undecided": "?", "not measured": "–"}
VERDICT_SYMBOLS = {"trustworthy": "✓", "walked back": "✕", "incomplete": "?"}
VERDICT_WORDS = {
    "trustworthy": "Every required check passes on exact or bounded evidence.",
    "walked back": "At least one required check fires: the claim does not stand as made.",
    "incomplete": "Nothing fires, but something is open; what would settle it is said below.",
}
