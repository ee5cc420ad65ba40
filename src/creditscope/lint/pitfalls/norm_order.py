"""CS001: an axis passed where a norm takes its order."""

import ast
from collections.abc import Iterator

from creditscope.lint.calls import argument, called_name, method, own_name
from creditscope.lint.pitfall import Hit, Pitfall
from creditscope.lint.recognise import AXIS_NAMES, NORMS
from creditscope.lint.source import Source

# F.normalize takes its order in the same place and is mistaken in the same way.
_NORMALIZE = "torch.nn.functional.normalize"


def find(source: Source) -> Iterator[Hit]:
    """Find norms whose order is a negative literal, or a name such as ``dim``, and that name no axis.

    Args:
        source: The file.
    """
    for call in source.calls():
        name = source.qualified(call.func)
        if name is None and method(call) == "norm":
            position = 0
        elif name in NORMS or name == _NORMALIZE:
            position = 1
        else:
            continue
        if len(call.args) <= position or argument(call, position + 1, *AXIS_NAMES) is not None:
            continue
        order = argument(call, position)
        if order is not None and _is_axis(source, call, order):
            text = ast.unparse(order)
            axis = "dim" if name is None or name.startswith("torch.") else "axis"
            yield Hit(
                call,
                f"`{called_name(call)}` takes {text} in this place as the order of the norm, not as the axis",
                f"name the axis: `{axis}={text}`",
            )


def _is_axis(source: Source, call: ast.Call, order: ast.expr) -> bool:
    if isinstance(order, ast.Name | ast.Attribute) and own_name(order) in AXIS_NAMES:
        return True
    value = source.number(order)
    if value is None or value != int(value):
        return False
    # keepdim without an axis has no use: such a 1 (or 0) was meant as the axis.
    keeps = any(item.arg in ("keepdim", "keepdims") for item in call.keywords)
    return value < 0 or (keeps and value < 2)


PITFALL = Pitfall(
    code="CS001",
    title="an axis passed as the order of a norm",
    why=(
        "The first argument of a norm is its order. `t.norm(-1)` is the norm of order -1 over ALL elements, "
        "1 / sum(1 / |x|): one number, ruled by the smallest entry, where an L2 norm per sample was meant."
    ),
    fix="name the axis: `t.norm(dim=-1)`, `torch.linalg.vector_norm(t, dim=-1)`, `np.linalg.norm(x, axis=-1)`",
    wrong="def norms(g):\n    return g.norm(-1)",
    right="def norms(g):\n    return g.norm(dim=-1)",
    find=find,
)
