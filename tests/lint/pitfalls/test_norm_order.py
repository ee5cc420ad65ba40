import pytest

CODE = "CS001"

WRONG = [
    "n = t.norm(-1)  #!",
    "n = t.norm(-2, keepdim=True)  #!",
    "import torch\nn = torch.norm(t, -1)  #!",
    "import torch as th\nn = th.linalg.norm(t, -1)  #!",
    "from torch.linalg import vector_norm as vn\nn = vn(t, -1)  #!",
    "import numpy as np\nn = np.linalg.norm(x, -1)  #!",
    "from numpy import linalg as LA\nn = LA.norm(x, -1, keepdims=True)  #!",
    "import torch.nn.functional as F\nu = F.normalize(t, -1)  #!",
    "def norms(t, dim=None):\n    return t.norm(dim)  #!",
    "n = t.norm(1, keepdim=True)  #!",
    "AXIS = -1\nn = g.flatten(1).norm(AXIS).median()  #!",
    """
    def f(states):
        for h in states:
            yield (
                h
                .norm(-1)
            )
    """.replace("                h\n", "                h  #!\n"),
]

RIGHT = [
    "n = t.norm()",
    "n = t.norm(dim=-1)",
    "n = t.norm(2, -1)",
    "n = t.norm(1)",
    "n = t.norm(p=-1)",
    "n = t.norm(2, dim=-1, keepdim=True)",
    "n = t.norm('fro')",
    "n = t.norm(float('inf'))",
    "n = t.norm(0.5)",
    "import torch\nn = torch.norm(t, 2, -1)",
    "import torch\nn = torch.linalg.norm(t, dim=-1)",
    "import torch\nn = torch.linalg.vector_norm(t, 2, -1)",
    "import numpy as np\nn = np.linalg.norm(x, axis=-1)",
    "import numpy as np\nn = np.linalg.norm(-1)",
    "import torch.nn.functional as F\nu = F.normalize(t, dim=-1)",
    "h = self.norm(h)",
    "from mine import norm\nn = norm(t, -1)",
    "from .torch import norm\nn = norm(t, -1)",
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
