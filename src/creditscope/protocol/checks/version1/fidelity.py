"""The fidelity check of version 1: φ as it was logged, whatever the settings of the probe."""

from typing import final

from creditscope.protocol.checks.fidelity import Fidelity


@final
class FidelityAsLogged(Fidelity):
    """Fires when φ, median over samples, is below the floor at any state."""

    wants_settings = False
