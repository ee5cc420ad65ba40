"""Every measured quantity once: name, symbol, unit, where and when it is measured, how to read it. No torch here.

Checks, figures, reports, sinks and ``show`` read rows through this table: a number has the same units everywhere.
"""

from typing import Any

from creditscope.quantities import expensive, per_epoch
from creditscope.quantities.quantity import Quantity

QUANTITIES: dict[str, Quantity[Any]] = {
    quantity.name: quantity
    for module in (per_epoch, expensive)
    for quantity in vars(module).values()
    if isinstance(quantity, Quantity)
}

__all__ = ["QUANTITIES", "Quantity"]
