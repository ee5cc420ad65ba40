import pytest

CODE = "CS005"

HEAD = "import math\nimport torch\nfrom torch import nn\n\n\n"
INIT = HEAD + "class Layer(nn.Module):\n    def __init__(self, o, i):\n        super().__init__()\n"

WRONG = [
    INIT + "        self.B = torch.randn(o, i)  #!",
    INIT + "        self.B = torch.randn(o, i).to('cuda') / math.sqrt(o)  #!",
    INIT + "        self.feedback: torch.Tensor = torch.rand(o, i, requires_grad=False)  #!",
    INIT + "        self.Bs = [torch.randn(o, i) for _ in range(4)]  #!",
    INIT + "        self.fb = {'a': torch.randn(o, i)}  #!",
    INIT + "        B = torch.randn(o, i)\n        self.B = B  #!",
    INIT + "        self.backward_weight = torch.empty(o, i).normal_()  #!",
    INIT + "        self.fixed = torch.randn(o, i)  #!",
    INIT + "        self.B = torch.empty(o, i)  #!\n        nn.init.kaiming_uniform_(self.B)",
    INIT + "        self.register_buffer('B', torch.randn(o, i), persistent=False)  #!",
    INIT + "        self.B = []\n        for _ in range(4):\n            self.B.append(torch.randn(o, i))  #!",
    INIT + "        self.B = torch.linalg.qr(torch.randn(o, i))[0]  #!",
    HEAD + "class Layer(nn.Module):\n    B = torch.randn(10, 10)  #!",
    HEAD + "class Layer(nn.Linear):\n    def reset(self):\n        self.feedback_weight = torch.randn(3, 3)  #!",
    HEAD
    + "class Base(nn.Module):\n    pass\n\n\nclass Layer(Base):\n    def __init__(self):\n"
    + "        self.B = torch.randn(3, 3)  #!",
    "import torch as th\n\n\nclass Layer(th.nn.Module):\n    def __init__(self):\n        self.B = th.randn(3, 3)  #!",
    "import torch\nimport lightning as L\n\n\nclass Net(L.LightningModule):\n    def __init__(self):\n"
    "        self.B = torch.randn(3, 3)  #!",
]

RIGHT = [
    # What a class from elsewhere saves is not known, and a plain object is saved whole or not at all.
    "import torch\nfrom mine import Block\n\n\nclass Layer(Block):\n    def __init__(self):\n"
    "        self.B = torch.randn(3, 3)\n\n    def forward(self, x):\n        return x",
    "import torch\n\n\nclass Feedback:\n    def __init__(self):\n        self.B = torch.randn(3, 3)\n\n"
    "    def forward(self, x):\n        return x",
    INIT + "        self.moments = torch.zeros_like(o)\n        self.moments.normal_()",
    INIT + "        self.register_buffer('B', torch.randn(o, i))",
    INIT + "        B = torch.randn(o, i)\n        self.register_buffer('B', B)",
    INIT + "        self.B = nn.Parameter(torch.randn(o, i), requires_grad=False)",
    INIT + "        self.B = nn.Buffer(torch.randn(o, i))",
    INIT + "        self.Bs = nn.ParameterList([nn.Parameter(torch.randn(o, i)) for _ in range(4)])",
    INIT + "        self.B = torch.randn(o, i)\n        self.B = nn.Parameter(self.B)",
    INIT + "        self.width = torch.randn(o, i).numel()",
    INIT + "        self.B = torch.eye(o)",
    INIT + "        self.out = nn.Linear(i, o)(torch.randn(2, i)).shape",
    INIT + "        self.example_input_array = torch.randn(1, i)\n        self.fixed_noise = torch.randn(8, 64)",
    HEAD
    + "class Layer(nn.Module):\n    def forward(self, x):\n        self.last = x + torch.randn(3)\n        return x",
    HEAD
    + "class Layer(nn.Module):\n    def __init__(self):\n        self.B = torch.randn(3, 3)\n\n"
    + "    def get_extra_state(self):\n        return {'B': self.B}",
    INIT + "        self.B = torch.randn(o, i)\n\n\ndef save(layer):\n    torch.save({'B': layer.B}, 'b.pt')",
    "import torch\n\n\nclass Data:\n    def __init__(self):\n        self.B = torch.randn(3, 3)",
    "import torch\n\n\nclass Step(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
    "        ctx.B = torch.randn(3, 3)\n        return x",
    "import torch\nB = torch.randn(3, 3)",
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
