"""CS007: the gradient norm of a mean-reduced loss compared with an absolute floor."""

import ast
from collections.abc import Iterator

from creditscope.lint.calls import called_name, keyword, own_name, receiver
from creditscope.lint.pitfall import Hit, Pitfall
from creditscope.lint.recognise import is_gradient, is_norm
from creditscope.lint.source import Source
from creditscope.lint.text import parts

_SMALLEST, _LARGEST = 1e-15, 1e-4
_LOSSES = {
    f"torch.nn.functional.{name}"
    for name in (
        "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div",
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "gaussian_nll_loss",
    )
}  # fmt: skip


def find(source: Source) -> Iterator[Hit]:
    """Find ``‖g‖ < 1e-7`` and its like in code whose loss is averaged over the batch.

    Args:
        source: The file.
    """
    if any(called_name(call) == "vmap" for call in source.calls()):
        return  # gradients per sample
    reductions: dict[ast.AST, set[str]] = {source.tree: _reductions(source, source.tree)}
    for node in source.nodes:
        if not isinstance(node, ast.Compare) or len(node.comparators) != 1:
            continue
        for norm, floor in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
            limit = source.number(floor)
            if limit is None or not _SMALLEST <= limit <= _LARGEST:
                continue
            if not is_norm(source, norm) or not is_gradient(source, norm):
                continue
            function = source.function(node)
            if function not in reductions:
                reductions[function] = _reductions(source, function)
            if (reductions[function] or reductions[source.tree]) == {"mean"}:
                yield Hit(
                    node,
                    f"the floor {limit:g} is absolute, but the gradient of a mean-reduced loss shrinks as 1/N "
                    "with the batch size N",
                )


def _reductions(source: Source, scope: ast.AST) -> set[str]:
    """How the losses in a scope are reduced: ``mean``, ``sum``, both or unknown."""
    found: set[str] = set()
    for call in (node for node in ast.walk(scope) if isinstance(node, ast.Call)):
        if (kind := _reduction(source, call)) is not None:
            found.add(kind)
        elif called_name(call) in ("mean", "sum") and _reduces_loss(source, call):
            found.add(called_name(call))
    return found


def _reduces_loss(source: Source, call: ast.Call) -> bool:
    """Whether a call of ``mean`` or ``sum`` takes a loss, or its value is assigned to one."""
    inner = receiver(source, call) or (call.args[0] if call.args else None)
    parent = source.parents.get(call)
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    return any(_is_loss(source, node) for node in (inner, *targets))


def _reduction(source: Source, call: ast.Call) -> str | None:
    """The reduction of a torch loss; None for another call, or where each sample keeps its own loss."""
    name = source.qualified(call.func) or ""
    if name not in _LOSSES and not (name.startswith("torch.nn.") and name.endswith("Loss")):
        return None
    given = keyword(call, "reduction")
    if given is None:
        return "mean"
    value = given.value if isinstance(given, ast.Constant) else None
    return value if value in ("mean", "sum") else None


def _is_loss(source: Source, node: ast.AST | None) -> bool:
    if isinstance(node, ast.Call):
        name = source.qualified(node.func) or ""
        return name in _LOSSES or "loss" in parts(called_name(node))
    return node is not None and bool({"loss", "losses"}.intersection(parts(own_name(node))))


PITFALL = Pitfall(
    code="CS007",
    title="an absolute floor on the gradient of a mean-reduced loss",
    why=(
        "A mean over N samples divides every per-sample gradient by N: one floor then means another thing for every "
        "batch size. The published floor 1e-7 was set at N = 128; per sample, summed, it is 1.28e-5."
    ),
    fix='use `reduction="sum"` and a floor per sample, or compare with `floor_per_sample / N`; write down N',
    wrong=(
        "import torch\nimport torch.nn.functional as F\n\ndef dead(h, y, head):\n"
        "    loss = F.cross_entropy(head(h), y)\n    (g,) = torch.autograd.grad(loss, h)\n"
        "    return g.norm(dim=-1).median() < 1e-7"
    ),
    right=(
        "import torch\nimport torch.nn.functional as F\n\ndef dead(h, y, head):\n"
        '    loss = F.cross_entropy(head(h), y, reduction="sum")\n    (g,) = torch.autograd.grad(loss, h)\n'
        "    return g.norm(dim=-1).median() < 1.28e-5"
    ),
    find=find,
)
