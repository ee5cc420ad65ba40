import pytest

from creditscope.lint.text import like_cosine, like_epsilon, like_feedback, like_gradient, like_norm, parts


def test_parts_split_camel_and_snake_case():
    assert parts("gradNorm_2") == ["grad", "norm", "2"]
    assert parts("CosineSimilarity") == ["cosine", "similarity"]
    assert parts("B") == ["b"]


@pytest.mark.parametrize(
    ("like", "yes", "no"),
    [
        (like_cosine, ["cos", "cos_sim", "cosine", "cosSim", "mean_cosine", "cosines"], ["cost", "cosine_lr", "acos"]),
        (like_norm, ["norm", "g_norm", "norms", "gnorm", "norm_a", "norm1"], ["normal", "layernorm", "normalize"]),
        (like_gradient, ["g", "g_l", "grad", "grads", "credit", "gradNorm"], ["graph", "requires_grad", "gamma"]),
        (
            like_feedback,
            ["B", "Bs", "B_1", "fb", "feedback", "backward_weight"],
            ["b", "Block", "bias", "weight"],
        ),
        (like_epsilon, ["eps", "EPS", "self_eps", "epsilon"], ["steps", "epoch"]),
    ],
)
def test_names(like, yes, no):
    assert [name for name in yes if not like(name)] == []
    assert [name for name in no if like(name)] == []
