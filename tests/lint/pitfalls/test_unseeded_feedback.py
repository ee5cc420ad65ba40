import pytest

CODE = "CS009"

HEAD = (
    "import torch\nimport numpy as np\nfrom torch import nn\n\n\n"
    "class Layer(nn.Module):\n    def __init__(self, o, i, seed):\n"
)

WRONG = [
    HEAD + "        self.B = torch.randn(o, i)  #!",
    HEAD + "        self.register_buffer('feedback', torch.randn(o, i))  #!",
    HEAD + "        self.fb = nn.Parameter(torch.rand(o, i) * 2 - 1, requires_grad=False)  #!",
    HEAD + "        self.Bs = [torch.randn(o, i) for _ in range(3)]  #!",
    HEAD + "        self.backward_weight = torch.empty(o, i).uniform_(-1, 1)  #!",
    HEAD + "        self.B = torch.randn(o, i, generator=None)  #!",
    HEAD + "        self.B = torch.from_numpy(np.random.randn(o, i))  #!",
    HEAD + "        B = torch.empty(o, i)\n        nn.init.normal_(B)  #!\n        self.register_buffer('B', B)",
    HEAD + "        self.order = torch.Generator().manual_seed(seed)\n        self.B = torch.randn(o, i)  #!",
    "import torch\n\n\nclass Feedback:\n    def __init__(self, classes, width):\n"
    "        self.B = (\n            torch.randn(classes, width)  #!\n            / classes**0.5\n        )",
]

RIGHT = [
    HEAD + "        self.B = torch.randn(o, i, generator=torch.Generator().manual_seed(seed))",
    HEAD + "        torch.manual_seed(seed)\n        self.B = torch.randn(o, i)",
    HEAD + "        rng = np.random.default_rng(seed)\n        self.B = torch.from_numpy(rng.standard_normal((o, i)))",
    HEAD + "        self.B = torch.zeros(o, i)",
    HEAD + "        self.weight = nn.Parameter(torch.randn(o, i))",
    HEAD + "        self.B = given",
    HEAD + "        self.B = torch.randn(o, i)\n\n\ndef main():\n    torch.manual_seed(0)\n    Layer(3, 3, 0)",
    "import torch\nB = torch.randn(3, 3)",
    HEAD + "        g = torch.Generator(seed)\n        self.B = nn.init.normal_(torch.empty(o, i), generator=g)",
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
