"""Names that tell cells apart."""

from protocol import cases

from creditscope.protocol.audit import audit
from creditscope.report.labels import letter, name_cells


def test_backprop_is_read_first_and_twins_share_a_colour():
    logs = [*cases.healthy("dfa"), *cases.healthy("bp"), *cases.cell("dfa+pen0.01", cases.ALIGNED)]
    cells = name_cells(audit(logs)).cells
    assert [cell.label for cell in cells] == ["bp", "dfa", "dfa+pen0.01", "bp@frozen", "bp@readout", "dfa@frozen"]
    colour = {cell.label: cell.colour for cell in cells}
    assert colour["bp"] == colour["bp@frozen"] != colour["dfa"] == colour["dfa@frozen"] != colour["dfa+pen0.01"]
    assert [cell.dash for cell in cells] == [0, 0, 1, 2, 2, 2]


def test_the_experiment_with_most_claims_comes_first():
    logs = [*cases.cell("fa", cases.ALIGNED, epochs=3), *cases.healthy("dfa"), *cases.healthy("bp")]
    names = name_cells(audit(logs))
    assert names.groups[0].startswith("A: resmlp, 4 blocks of width 256, cifar10, 5 epochs")
    assert names.claims[-1].judged.cell.label == "fa (B)"


def test_cells_that_differ_only_in_how_they_were_probed_say_so():
    logs = cases.cell("dfa", cases.ALIGNED)
    probe = logs[0].spec.probe.model_copy(update={"n": 512})
    other = cases.cell("dfa", cases.ALIGNED, probe=probe)
    assert [cell.label for cell in name_cells(audit([*logs, *other])).cells] == [
        "dfa (probe 1024 sum)",
        "dfa (probe 512 sum)",
    ]


def test_letters():
    assert [letter(i) for i in (0, 25, 26, 53)] == ["A", "Z", "A1", "B2"]


def test_a_method_has_one_colour_in_every_experiment_and_none_of_its_neighbours():
    first = [*cases.healthy("bp"), *cases.healthy("dfa"), *cases.cell("dfa-rms", cases.COLLAPSED)]
    other = [*cases.healthy("fa", epochs=3), *cases.cell("dfa-rms", cases.COLLAPSED, epochs=3)]
    named = name_cells(audit([*first, *other])).cells
    colours = [{n.judged.cell.method: n.colour for n in named if n.group == group} for group in (0, 1)]
    assert colours[0]["dfa-rms"] == colours[1]["dfa-rms"]
    for found in colours:
        claims = {method: colour for method, colour in found.items() if "@" not in method}
        assert len(set(claims.values())) == len(claims)
