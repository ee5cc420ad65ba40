"""The two protocols and their numbers."""

from creditscope.protocol.presets import protocol_named


def test_published_requires_three_checks_and_standard_all():
    published, standard = protocol_named("published"), protocol_named("standard")
    assert [check.name for check in published.required] == ["scale", "reference", "depth"]
    assert [check.name for check in standard.required] == [
        "scale",
        "reference",
        "depth",
        "fidelity",
        "direction",
        "movement",
    ]
    for protocol in (published, standard):
        assert [check.name for check in protocol.advisory] == ["drift", "representation"]
        assert protocol.version


def test_the_defaults_of_the_protocol():
    assert protocol_named("standard").thresholds == {
        "scale": 50.0,
        "reference": 1e-7 * 128,
        "depth": 2.0,
        "fidelity": 0.9999,
        "direction": 0.05,
        "movement": 1e-4,
        "drift": 0.30,
        "representation": 0.0,
    }


def test_overrides_are_kept_beside_the_thresholds():
    protocol = protocol_named("standard", {"scale": 40, "depth": -1.0})
    assert protocol.overrides == (("depth", -1.0), ("scale", 40))
    assert protocol.thresholds["scale"] == 40
