import math

import torch

from creditscope.probes.seeds import gaussian, probe_generator


def test_a_stream_follows_from_its_three_arguments_alone() -> None:
    def first(*key: object) -> list[float]:
        return torch.randn(4, generator=probe_generator(*key)).tolist()  # type: ignore[arg-type]

    state = torch.get_rng_state()
    assert first(1, 2, "rho/0") == first(1, 2, "rho/0")
    others = [first(*key) for key in ((2, 2, "rho/0"), (1, 3, "rho/0"), (1, 2, "rho/1"), (12, 0, "a"), (1, 20, "a"))]
    assert len({tuple(v) for v in [*others, first(1, 2, "rho/0")]}) == 6
    assert torch.equal(torch.get_rng_state(), state)


def test_entries_are_standard_normal_float64() -> None:
    values = gaussian((200, 100), probe_generator(0, 0, "x"))
    assert values.dtype == torch.float64
    assert abs(float(values.mean())) < 5 / math.sqrt(20_000)
    assert abs(float(values.std()) - 1) < 5 / math.sqrt(40_000)
