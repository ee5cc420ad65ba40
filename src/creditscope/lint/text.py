"""What a name suggests: is it called like a norm, a cosine, a gradient, a feedback matrix?"""

import re

# Ways in which a name with "cosine" in it is no similarity: a learning-rate schedule.
_SCHEDULE = {"lr", "sched", "schedule", "scheduler", "decay", "anneal", "annealing", "warmup", "restarts"}
# Attributes with "grad" in them that hold no gradient.
_SWITCHES = {"requires_grad", "requires_grad_", "no_grad", "enable_grad", "zero_grad", "set_grad_enabled", "inference"}

_COSINE = re.compile(r"(cos|cosines?)(sims?|similarity|similarities)?\d*")
_ANGLES = {"angle", "angles", "alignment", "alignments"}
_NORM = re.compile(r"[a-z]?norms?\d*|nrm\d*")
_GRADIENT = re.compile(r"g\d*|grads?\d*|gradients?\d*|gnorms?\d*|credits?\d*|deltas?\d*")
_FEEDBACK = re.compile(r"Bs?(_?\d+)?|B_\w+|fb\d*|fbs|feedbacks?\d*")
_FEEDBACK_PARTS = {"feedback", "feedbacks", "fb"}
_BACKWARD_WEIGHT = re.compile(
    r"(backward|feedback|fixed|random|fa|dfa)_(weights?|matrix|matrices|w)|(weights?|w)_(fa|dfa|fb|backward)"
)


def parts(name: str) -> list[str]:
    """The lower-case words of a name: ``gradNorm_2`` gives ``grad``, ``norm``, ``2``."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+\d*|[A-Z]+(?![a-z])\d*|\d+", name)]


def like_cosine(name: str) -> bool:
    """Whether a name suggests a cosine similarity."""
    words = parts(name)
    return any(_COSINE.fullmatch(word) for word in words) and not _SCHEDULE.intersection(words)


def like_angle(name: str) -> bool:
    """Whether a name suggests an angle between vectors, or its cosine by another name."""
    return any(word in _ANGLES for word in parts(name))


def like_norm(name: str) -> bool:
    """Whether a name suggests the norm of a vector."""
    return any(_NORM.fullmatch(word) for word in parts(name))


def like_gradient(name: str) -> bool:
    """Whether a name suggests a gradient or a credit signal."""
    return name not in _SWITCHES and any(_GRADIENT.fullmatch(word) for word in parts(name))


def like_feedback(name: str) -> bool:
    """Whether a name suggests a feedback matrix."""
    bare = name.strip("_")
    return bool(
        _FEEDBACK.fullmatch(bare)
        or _BACKWARD_WEIGHT.fullmatch(bare.lower())
        or _FEEDBACK_PARTS.intersection(parts(bare))
    )


def like_epsilon(name: str) -> bool:
    """Whether a name suggests a small constant that guards a division."""
    return any(word in ("eps", "epsilon") for word in parts(name))
