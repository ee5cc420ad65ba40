"""What was found, in the form that was asked for."""

import json
import shutil
from typing import TYPE_CHECKING

from creditscope.cli.audit import Format

if TYPE_CHECKING:
    from creditscope.protocol.comparison import Comparison
    from creditscope.protocol.explanation import Explanation


def written(found: "Comparison | Explanation", form: Format) -> str:
    """Its text.

    Args:
        found: What is printed.
        form: How.
    """
    if form is Format.json:
        return json.dumps(found.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)
    if form is Format.md:
        return found.to_markdown()
    if form is Format.latex:
        return found.to_latex()
    return found.to_text(shutil.get_terminal_size((120, 24)).columns)
