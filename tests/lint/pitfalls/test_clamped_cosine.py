import pytest

CODE = "CS002"

WRONG = [
    "import torch.nn.functional as F\nc = F.cosine_similarity(a, b, dim=-1)  #!",
    "import torch\nc = torch.cosine_similarity(a, b)  #!",
    "import torch as th\nc = th.nn.functional.cosine_similarity(a, b, eps=1e-6)  #!",
    "from torch.nn.functional import cosine_similarity as cs\nc = cs(a, b, -1, 1e-12)  #!",
    "from torch import nn\ncos = nn.CosineSimilarity(dim=1)  #!\nc = cos(a, b)",
    "from torch.nn import CosineSimilarity\ncos = CosineSimilarity(1, 1e-8)  #!",
    "import torch.nn.functional as F\nsim = F.cosine_similarity\nc = sim(a, b)  #!",
    "import torch.nn.functional as F\nEPS = 1e-8\nc = F.cosine_similarity(a, b, eps=EPS)  #!",
    "import torch\nimport torch.nn.functional as F\nc = F.cosine_similarity(a, b, eps=torch.finfo(a.dtype).eps)  #!",
    "c = (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1) + 1e-8)  #!",
    "c = (a * b).sum(-1) / (1e-8 + a.norm(dim=-1) * b.norm(dim=-1))  #!",
    "c = (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1)).clamp(min=1e-8)  #!",
    "c = (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1)).clamp_min(1e-8)  #!",
    "import torch\nc = torch.dot(a, b) / torch.clamp(torch.norm(a) * torch.norm(b), min=1e-8)  #!",
    "c = a.dot(b) / max(a.norm() * b.norm(), 1e-8)  #!",
    "import numpy as np\nc = a @ b / np.maximum(np.linalg.norm(a) * np.linalg.norm(b), 1e-12)  #!",
    "c = a.dot(b) / (a.norm() + 1e-8) / (b.norm() + 1e-8)  #!",
    "c = a.dot(b) / ((a.norm() + 1e-8) * (b.norm() + 1e-8))  #!",
    "na, nb = a.norm(), b.norm()\ndenom = na * nb + 1e-8\nc = a.dot(b) / denom  #!",
    "d = a.norm() * b.norm()\nd = d.clamp(min=1e-8)\nc = a.dot(b) / d  #!",
    "na = a.norm().clamp(min=1e-8)\nnb = b.norm().clamp(min=1e-8)\nc = a.dot(b) / (na * nb)  #!",
    "def cosine(a, b, eps=1e-8):\n    return (a * b).sum() / (a.norm() * b.norm() + eps)  #!",
    "c = (a * b).sum() / ((a * a).sum().sqrt() * (b * b).sum().sqrt() + 1e-8)  #!",
    "import torch\nc = (a * b).sum() / (torch.sqrt((a * a).sum() * (b * b).sum()) + 1e-8)  #!",
    "c = (a * b).sum().div(a.norm() * b.norm() + 1e-8)  #!",
    "u = a / (a.norm() + 1e-8)\nv = b / (b.norm() + 1e-8)\nc = (u * v).sum()  #!",
    "import torch\nc = torch.dot(a / (a.norm() + 1e-8), b / (b.norm() + 1e-8))  #!",
]

RIGHT = [
    "import torch.nn.functional as F\nc = F.cosine_similarity(a, b, dim=-1, eps=0.0)",
    "import torch.nn.functional as F\nc = F.cosine_similarity(a, b, dim=-1, eps=1e-40)",
    "import torch.nn.functional as F\nc = F.cosine_similarity(a, b, eps=chosen)",
    "import torch.nn.functional as F\nc = F.cosine_similarity(a, b, **options)",
    "from mine import cosine_similarity\nc = cosine_similarity(a, b)",
    "from sklearn.metrics.pairwise import cosine_similarity\nc = cosine_similarity(a, b)",
    "c = (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))",
    "c = a.dot(b) / a.norm() / b.norm()",
    "unit = v / (v.norm() + 1e-8)",
    "n = a.norm()\nn = n + 1e-8\nu = a / n",
    "step = m / (v.sqrt() + 1e-8)",
    "ratio = f.norm() / (h.norm() + 1e-8)",
    "import torch\nz = (x - x.mean()) / (x.std() * s + 1e-8)",
    "p = (a * b).sum() / (n_samples * width + 1e-8)",
    "def forward(self, h):\n    return self.norm(h) * self.norm(g) / (scale + 1e-8)",
    "import torch\ny = torch.cos(x)",
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
