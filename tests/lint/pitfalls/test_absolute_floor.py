import pytest

CODE = "CS007"

MEAN = "import torch\nimport torch.nn.functional as F\nloss = F.cross_entropy(model(x), y)\nloss.backward()\n"

WRONG = [
    MEAN + "dead = h.grad.norm(dim=-1).median() < 1e-7  #!",
    MEAN + "FLOOR = 1e-7\ng = h.grad\nif g.norm() < FLOOR:  #!\n    pass",
    MEAN + "g_norm = h.grad.norm().item()\nif 1e-8 > g_norm:  #!\n    pass",
    MEAN + "grad_norm = measure()\nalive = grad_norm >= 10**-7  #!",
    MEAN + "grad_norms = torch.linalg.vector_norm(h.grad, dim=-1)\ndead = (grad_norms < 1e-8).float().mean()  #!",
    """
    from torch import nn
    criterion = nn.CrossEntropyLoss()
    def check(model, x, y):
        criterion(model(x), y).backward()
        return model.weight.grad.norm() < 1e-7  #!
    """,
    """
    import torch
    def check(h, losses):
        loss = losses.mean()
        (g,) = torch.autograd.grad(loss, h)
        return g.norm() < 1e-7  #!
    """,
    """
    import torch
    import torch.nn.functional as F
    def train(model, x, y):
        F.mse_loss(model(x), y, reduction="sum").backward()
    def check(model, x, y, h):
        loss = F.mse_loss(model(x), y, reduction="mean")
        (g,) = torch.autograd.grad(loss, h)
        return g.norm(dim=-1).median() < 1e-7  #!
    """,
]

RIGHT = [
    'import torch.nn.functional as F\nF.cross_entropy(z, y, reduction="sum").backward()\nd = h.grad.norm() < 1.28e-5',
    'import torch.nn.functional as F\nF.mse_loss(z, y, reduction="none").sum().backward()\nd = h.grad.norm() < 1e-7',
    MEAN + "dead = h.grad.norm() * len(x) < 1.28e-5",
    MEAN + "dead = h.grad.norm() < 1e-7 * 128 / len(x)",
    MEAN + "dead = h.grad.norm() == 0",
    MEAN + "big = h.grad.norm() > 10",
    MEAN + "small = h.norm() < 1e-7",
    MEAN + "done = loss.item() < 1e-7",
    "grad_norm = solver.grad_norm\nif grad_norm < 1e-8:\n    pass",
    "import torch\nloss = film(a).sum()\nloss.backward()\nd = a.grad.norm() < 1e-7",
    MEAN + "from torch.func import grad, vmap\ng = vmap(grad(one))(p, x, y)\ndead = g.norm(dim=-1) < 1e-7",
]


@pytest.mark.parametrize("snippet", WRONG)
def test_wrong_code_is_found_on_its_line(lines, snippet):
    found, marked = lines(CODE, snippet)
    assert marked
    assert found == marked


@pytest.mark.parametrize("snippet", RIGHT)
def test_right_code_is_left_alone(lines, snippet):
    found, marked = lines(CODE, snippet)
    assert not marked
    assert found == []
