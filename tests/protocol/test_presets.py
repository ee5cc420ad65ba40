"""The protocols that ship, and their numbers."""

import pytest

from creditscope.protocol.presets import protocol_named

REQUIRED = {
    "published": ["scale", "reference", "depth"],
    "standard@1": ["scale", "reference", "depth", "fidelity", "direction", "movement"],
    "standard": ["learning", "scale", "reference", "fidelity", "direction", "depth", "movement", "ladder"],
}


@pytest.mark.parametrize(("name", "version"), [("published", "1"), ("standard@1", "1"), ("standard", "2")])
def test_what_each_requires_and_advises(name, version):
    protocol = protocol_named(name)
    assert (protocol.name, protocol.version) == (name.partition("@")[0], version)
    assert [check.name for check in protocol.required] == REQUIRED[name]
    idle = ["idle"] if name == "standard" else []
    assert [check.name for check in protocol.advisory] == ["drift", "representation", *idle]


def test_what_each_family_is_asked():
    checks = protocol_named("standard")
    asked = {
        family: [c.name for c in checks.required if family in checks.families.get(c.name, (family,))]
        for family in ("signal", "update", "objective")
    }
    everyone = ["learning", "scale", "depth", "movement"]
    assert sorted(asked["signal"]) == sorted([*everyone, "reference", "fidelity", "direction"])
    assert sorted(asked["update"]) == sorted([*everyone, "fidelity", "direction"])
    assert sorted(asked["objective"]) == sorted([*everyone, "ladder"])


def test_the_defaults_of_the_protocol():
    assert protocol_named("standard").thresholds == {
        "learning": 1.0,
        "scale": 50.0,
        "reference": 1e-7 * 128,
        "fidelity": 0.9999,
        "direction": 0.05,
        "depth": 2.0,
        "movement": 1e-4,
        "ladder": 0.5,
        "drift": 0.30,
        "representation": 0.0,
        "idle": 0.0,
    }


def test_overrides_are_kept_beside_the_thresholds():
    protocol = protocol_named("standard", {"scale": 40, "depth": -1.0})
    assert protocol.overrides == (("depth", -1.0), ("scale", 40))
    assert protocol.thresholds["scale"] == 40
