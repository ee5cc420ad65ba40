import pytest

CODE = "CS008"

WRONG = [
    "import torch\nd = loss(h + 1e-3 * v) - loss(h)  #!",
    "import torch\nEPS = 1e-3\nup = loss(h + v * EPS)  #!\nd = up - loss(h)",
    """
    import torch
    def change(f, x, v, eps=1e-4):
        plus = f(x + eps * v).item()  #!
        minus = f(x - eps * v).item()  #!
        return (plus - minus) / (2 * eps)
    """,
    """
    import torch
    def rho(tail, h, base):
        v = torch.randn_like(h)
        v = v / v.norm(dim=-1, keepdim=True)
        moved = h + 1e-3 * v  #!
        return tail(moved) - base
    """,
    "import torch\nd = f(h + 1e-3 * v / v.norm()) - f(h)  #!",
    "import torch\nd = criterion(model(h + 1e-2 * v), y) - criterion(model(h), y)  #!",
    """
    import torch
    def predicted(loss_fn, h, credit):
        base = loss_fn(h)
        for _ in range(8):
            noise = torch.randn_like(h)
            delta = loss_fn(h + 1e-3 * noise) - base  #!
            yield (noise * credit).sum(), delta
    """,
    "import jax\nd = f(x + 1e-3 * v) - f(x)  #!",
    "import torch\nd = f(h - 1e-2 * credit) - f(h)  #!",
    """
    import torch
    def numeric(f, p):
        eps = 1e-3
        p[0] += eps  #!
        plus = f(p)
        p[0] -= 2 * eps
        minus = f(p)
        return (plus - minus) / (2 * eps)
    """,
]

RIGHT = [
    "import torch\nkl = torch.log(weights + 1e-5) - torch.log(others + 1e-5)",
    "import torch\ngap = model(weights + 1e-5) - baseline(weights)",
    "import torch\nd = loss(h + 1e-3 * v) - 0.5 * penalty(h)",
    "import torch\nd = loss(h + 1e-3 * h.norm() * v) - loss(h)",
    "import torch\neps = 1e-3 * h.norm(dim=-1).median()\nd = loss(h + eps * v) - loss(h)",
    "import torch\nd = loss(h + 1e-3 * scale * v) - loss(h)",
    "import torch\nd = loss(h.double() + 1e-3 * v.double()) - loss(h.double())",
    "import torch\ndef f(loss, h, v):\n    h, v = h.double(), v.double()\n    return loss(h + 1e-3 * v) - loss(h)",
    "import torch\ntorch.set_default_dtype(torch.float64)\ndef f(loss, h, v):\n    return loss(h + 1e-3 * v) - loss(h)",
    "import torch\ndef f(loss, h, v):\n    return loss(h + 1e-3 * v) - loss(h)\n\n\nf(tail, h.double(), v.double())",
    "import jax\njax.config.update('jax_enable_x64', True)\ndef f(g, h, v):\n    return g(h + 1e-3 * v) - g(h)",
    "import numpy as np\nd = f(x + 1e-6 * v) - f(x)",
    "import torch\nnoisy = model(x + 1e-2 * noise)",
    "import torch\nw = w - 1e-2 * w.grad",
    "import torch\nd = loss(h + step * v) - loss(h)",
    "import torch\nd = loss(h + 1.5 * v) - loss(h)",
    "import torch\nd = loss(h + v) - loss(h)",
    "import torch\nrow[0] += 1e-3\nd = a - b",
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
