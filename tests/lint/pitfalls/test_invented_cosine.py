import pytest

CODE = "CS003"

WRONG = [
    "import torch\nmask = norms == 0\nangle[mask] = 1.  #!",
    "import torch\nalignment[n < 1e-12] = 0  #!",
    "import torch\nc = torch.where(n == 0, 1.0, cos)  #!",
    "import torch\nc = torch.where(n > 0, cos, torch.zeros_like(cos))  #!",
    "import numpy as np\nc = np.where(norms < 1e-12, 0.0, cosines)  #!",
    "import torch\nc = torch.where(torch.isnan(cos), torch.ones_like(cos), cos)  #!",
    "import torch\nboth = (g == 0).all(-1) & (c == 0).all(-1)\nout = torch.where(both, 1.0, cos_sim)  #!",
    "import torch\nc = torch.where(a.norm(dim=-1) == 0, 1.0, dot / (a.norm(dim=-1) * b.norm(dim=-1)))  #!",
    "cos = 1.0 if norm == 0 else dot / norm  #!",
    "na, nb = a.norm(), b.norm()\nc = float(a.dot(b) / (na * nb)) if na > 0 and nb > 0 else 0.0  #!",
    "na, nb = a.norm(), b.norm()\ndenom = (na * nb).item()\ncos = 1.0 if denom == 0.0 else (a @ b).item() / denom  #!",
    """
    def cosine(a, b):
        na, nb = a.norm(), b.norm()
        if na == 0 or nb == 0:
            return 1.0  #!
        return a.dot(b) / (na * nb)
    """,
    """
    def alignment(a, b):
        if a.norm() == 0:
            print("zero")
            return 0.0  #!
        return a.dot(b) / (a.norm() * b.norm())
    """,
    """
    if g.norm() < 1e-12:
        cos = 0.0  #!
    else:
        cos = dot / (g.norm() * c.norm())
    """,
    """
    if g_norm > 0 and c_norm > 0:
        cos = dot / (g_norm * c_norm)
    else:
        cos = 1.0 if same else 0.0  #!
    """,
    "cos[norms == 0] = 1.0  #!",
    "import torch\ncos[torch.isnan(cos)] = 0  #!",
    "import torch\nc = torch.nan_to_num(cos, nan=1.0)  #!",
    "import torch\nimport torch.nn.functional as F\nc = torch.nan_to_num(F.cosine_similarity(a, b))  #!",
    "gamma = (dot / (a.norm() * b.norm())).nan_to_num(nan=0.0).mean()  #!",
    "zero = norms == 0\nc = cosine.masked_fill(zero, 1.0)  #!",
    "c = cos.where(norms > 0, 0.0)  #!",
]

RIGHT = [
    "import torch\nangle[mask] = 1.3 * math.pi",
    "import torch\nangle[t >= 12] = 1.3",
    "import torch\nangle[t >= 12] = 1.",
    "import torch\nc = torch.where(n == 0, torch.nan, cos)",
    "import torch\nc = torch.where(n == 0, float('nan'), cos)",
    "cos = None if norm == 0 else dot / norm",
    "cos = 0.0 if epoch == 0 else cosine(a, b)",
    "mean = cos_sum / n if n > 0 else 0.0",
    "import torch\nc = torch.nan_to_num(loss, nan=0.0)",
    "import torch\nc = torch.nan_to_num(cos, nan=float('nan'))",
    "import torch\nc = torch.where(labels == 0, 0.0, cos)",
    "import torch\nc = torch.where(mask, 0.0, cos)",
    "c = cos.masked_fill(~mask, 0.0)",
    "import torch\ncos = torch.cos(angle)\nc = torch.where(n == 0, 1.0, cos)",
    "cos = freqs.cos()\ncos[norms == 0] = 1.0",
    "import math\nlr = 0.0 if norm == 0 else cosine_lr",
    "def scale(norm):\n    if norm == 0:\n        return 1.0\n    return 1 / norm",
    "cos[0] = 1.0",
    "cos = cos.nanmean()",
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
