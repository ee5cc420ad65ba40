import pytest

CODE = "CS006"

WRONG = [
    "import torch.nn.functional as F\nc = F.cosine_similarity(g, g, dim=-1)  #!",
    "import torch.nn.functional as F\nc = F.cosine_similarity(x1=g, x2=g)  #!",
    "from torch.nn.functional import cosine_similarity as cs\nc = cs(grads[l], grads[l].detach())  #!",
    "import torch\nc = torch.cosine_similarity(g.view(-1), g.flatten(), dim=0)  #!",
    "from torch import nn\ncos = nn.CosineSimilarity(dim=0)\nc = cos(self.g, self.g)  #!",
    "def cosine(a, b):\n    return a @ b\n\n\nc = cosine(state.grad, state.grad)  #!",
    "credit = g\nc = cosine(credit, g)  #!",
    "import torch\nc = cosine(torch.cat([p.flatten() for p in ps]), torch.cat([p.flatten() for p in ps]))  #!",
    "c = cosine(credits.get(l, g), g)  #!",
    "credit = credits.get(name, grads[name])\nc = cosine(credit, grads[name])  #!",
    "c = cosine(aux if aux is not None else g, g)  #!",
    "c = cosine(g, aux or g)  #!",
    "credit = getattr(block, 'credit', g)\nc = cosine(credit, g)  #!",
]

RIGHT = [
    "import torch.nn.functional as F\nc = F.cosine_similarity(c, g, dim=-1)",
    "import torch.nn.functional as F\nc = F.cosine_similarity(x[:, None], x[None, :], dim=-1)",
    "import torch.nn.functional as F\nc = F.cosine_similarity(x.unsqueeze(1), x.unsqueeze(0), dim=-1)",
    "import torch.nn.functional as F\nc = F.cosine_similarity(x.view(n, 1, d), x.view(1, n, d), dim=-1)",
    "import torch\nc = cosine(torch.randn(8), torch.randn(8))",
    "c = cosine(next(batches), next(batches))",
    "from sklearn.metrics.pairwise import cosine_similarity\nm = cosine_similarity(X, X)",
    "from sentence_transformers import util\nm = util.cos_sim(e, e)",
    "assert cosine(g, g) == 1.0",
    "c = cosine(grads[0], grads[1])",
    "c = cosine(credits.get(l), g)",
    "c = cosine(credits.get(l, other), g)",
    "import math\ny = math.cos(x) * math.cos(x)",
    "d = distance(g, g)",
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
