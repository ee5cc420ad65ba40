import pytest

CODE = "CS004"

WRONG = [
    """
    model = model.half()  #!
    model(x).sum().backward()
    print(model.weight.grad.norm())
    """,
    """
    import torch
    model.to(torch.float16)  #!
    norms = [p.grad.norm().item() for p in model.parameters()]
    """,
    """
    import torch
    DTYPE = torch.half  #!
    model.to(DTYPE)
    g_norm = torch.linalg.norm(g)
    """,
    """
    import torch
    import torch.nn.functional as F
    def probe(model, x, credit, h):
        with torch.autocast("cuda", dtype=torch.float16):  #!
            loss = model(x)
        (g,) = torch.autograd.grad(loss, h)
        return F.cosine_similarity(credit, g)
    """,
    """
    import torch
    def probe(loss, h):
        with torch.cuda.amp.autocast():  #!
            loss()
        return h.grad.norm(dim=-1)
    """,
    """
    from torch.amp import autocast
    def measure(h):
        return h.grad.norm(dim=-1)
    def epoch(h):
        with autocast(device_type="cuda"):  #!
            measure(h)
    """,
    """
    import torch
    @torch.autocast("cuda")  #!
    def measure(h):
        return h.grad.norm(dim=-1)
    """,
    """
    from torch.cuda.amp import GradScaler
    scaler = GradScaler()  #!
    scaler.scale(loss).backward()
    norms = [p.grad.norm() for p in model.parameters()]
    """,
    """
    import torch
    model.half()  #!
    (g,) = torch.autograd.grad(loss, h)
    """,
    """
    model.half()  #!
    saved = [p.grad.detach().clone() for p in model.parameters()]
    """,
    """
    import numpy as np
    saved = np.linalg.norm(grads.astype("float16"), axis=-1)  #!
    """,
    """
    trainer = Trainer(precision="16-mixed")  #!
    norm = layer.weight.grad.norm()
    """,
    """
    arguments = TrainingArguments(fp16=True)  #!
    norm = layer.weight.grad.norm()
    """,
]

RIGHT = [
    "model = model.half()\ny = model(x)",
    "model = model.half()\nfor p in ps:\n    p.grad.zero_()\n    p.grad = None",
    """
    import torch
    scaler = torch.amp.GradScaler()
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    """,
    """
    import torch
    def train(model, x):
        with torch.autocast("cuda"):
            return model(x)
    def measure(h):
        return h.grad.norm(dim=-1)
    """,
    """
    import torch
    def measure(model, x, h):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            model(x)
        return h.grad.norm(dim=-1)
    """,
    """
    import torch
    def measure(model, x, h):
        with torch.autocast("cpu"):
            model(x)
        return h.grad.norm(dim=-1)
    """,
    """
    import torch
    def measure(model, x, h):
        with torch.autocast("cuda", enabled=False):
            model(x)
        return h.grad.norm(dim=-1)
    """,
    """
    import torch
    if g.dtype == torch.float16:
        raise TypeError("not in float16")
    norm = g.norm()
    """,
    """
    import torch
    NAMES = {"float16": torch.float16, "float32": torch.float32}
    limit = torch.finfo(torch.float16).max
    norm = g.norm()
    """,
    "import torch\nself.assertEqual(p.grad.dtype, torch.float16)\nnorm = p.grad.norm()",
    "model.double()\nnorm = p.grad.norm()",
    "trainer = Trainer(precision='bf16-mixed')\nnorm = p.grad.norm()",
    "arguments = TrainingArguments(fp16=False)\nnorm = p.grad.norm()",
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
