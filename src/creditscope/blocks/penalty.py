"""The branch penalty λ·‖f_l‖² as an operation that keeps the value and adds its gradient in the backward pass."""

from typing import Any

import torch
from torch import Tensor


def penalised(branch: Tensor, penalty: Tensor) -> Tensor:
    """The branch as it is; a backward pass adds the gradient of λ·mean_batch ‖f‖² to what arrives there.

    The square is summed over features and averaged over tokens where there are any.

    Args:
        branch: f, first axis samples.
        penalty: λ, a scalar.
    """
    return _OnBranch.apply(branch, penalty)  # type: ignore[no-untyped-call, no-any-return]


def penalised_sum(after: Tensor, before: Tensor, penalty: Tensor) -> Tensor:
    """The same for a block that shows only h_{l+1} = h_l + f: the gradient reaches f through both.

    Args:
        after: h_{l+1}.
        before: h_l.
        penalty: λ, a scalar.
    """
    return _OnSum.apply(after, before, penalty)  # type: ignore[no-untyped-call, no-any-return]


def _gradient(branch: Tensor, penalty: Tensor) -> Tensor:
    tokens = branch.shape[1] if branch.ndim == 3 else 1
    return branch * (2 * penalty / (tokens * len(branch)))


class _OnBranch(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(branch: Tensor, penalty: Tensor) -> Tensor:
        return branch.view_as(branch)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient + _gradient(*ctx.saved_tensors), None


class _OnSum(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(after: Tensor, before: Tensor, penalty: Tensor) -> Tensor:
        return after.view_as(after)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        after, before, penalty = ctx.saved_tensors
        added = _gradient(after - before, penalty)
        return gradient + added, -added, None
