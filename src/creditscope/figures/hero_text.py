"""The hero's captions: text chosen from the numbers, so that they never say what the logs do not show."""

from collections.abc import Collection, Sequence

from creditscope.figures.choose import is_frozen
from creditscope.figures.means import common_epochs, mean_at, value_of
from creditscope.figures.table import EXACT, Point
from creditscope.figures.text import hold, listed, sci, signed
from creditscope.protocol.cells import Cell
from creditscope.protocol.checks.direction import Direction
from creditscope.quantities.per_epoch import ACCURACY

# The least cosine that the direction check calls aligned.
ALIGNED = Direction.threshold
QUADRANTS = {
    "both": "looks like learning",
    "neither": "neither",
    "aligned": "aligned, no better than chance",
    "accurate": "accurate, not aligned",
}


def pair_text(points: Sequence[Point], cells: Sequence[Cell], chance: float | None) -> str:
    """What panel A shows: who lands in which quadrant, and who loses to its own frozen twin.

    Args:
        points: The markers.
        cells: Every cell of the logs, twins that are not drawn among them.
        chance: 1/classes; None when unknown.
    """
    if not points:
        return ""
    groups: dict[str, list[str]] = {}
    for point in points:
        assert isinstance(point.x, float)
        assert point.y is not None
        up = point.x > 0
        if chance is None:
            key = "Γ > 0" if up else "Γ ≤ 0"
        else:
            learns = point.y > chance
            key = QUADRANTS["both" if up and learns else "aligned" if up else "accurate" if learns else "neither"]
        groups.setdefault(key, []).append(point.series)
    sentences = [f"{key[0].upper()}{key[1:]}: {listed(names)}." for key, names in groups.items()]
    sentences += [_twins(cells, {point.series for point in points})]
    if chance is None:
        sentences.append("Chance: the logs name no single number of classes, so no line is drawn.")
    else:
        sentences.append(f"Chance: {sci(chance)}.")
    return hold(" ".join(filter(None, sentences)))


def margins(cells: Sequence[Cell]) -> list[tuple[Cell, Cell, float]]:
    """Each claim with the matched network whose blocks never trained, and its margin over it as a fraction.

    Args:
        cells: Every cell of the logs.
    """
    frozen = {cell.spec.match_key: cell for cell in cells if is_frozen(cell) and not cell.ended_early}
    found = []
    for cell in cells:
        twin = frozen.get(cell.spec.match_key)
        if twin is None or cell.spec.is_baseline or cell.ended_early:
            continue
        mine, theirs = _final(cell), _final(twin)
        if mine is not None and theirs is not None:
            found.append((cell, twin, mine - theirs))
    return found


def _twins(cells: Sequence[Cell], drawn: Collection[str]) -> str:
    """Who of the methods drawn scores below its frozen twin."""
    below: list[str] = []
    above: list[str] = []
    for cell, _, margin in margins(cells):
        if cell.label in drawn:
            (below if margin < 0 else above).append(f"{cell.label} {signed(100 * margin)} pp")
    sentences = [
        f"Below its own frozen-blocks twin: {listed(below)}." if below else "",
        f"Above it: {listed(above)}." if below and above else "",
        f"Above its own frozen-blocks twin: {listed(above)}." if above and not below else "",
    ]
    return " ".join(filter(None, sentences))


def _final(cell: Cell) -> float | None:
    shared = common_epochs(cell.runs)
    return mean_at(cell.runs, shared[-1], value_of(ACCURACY)).y if shared else None


def cosine_text(points: Sequence[Point]) -> str:
    """What panel B shows: for each method, at which blocks the cosine is worth the name.

    Args:
        points: The cosines.
    """
    lines: dict[str, list[Point]] = {}
    for point in points:
        if point.y is not None:
            lines.setdefault(point.series, []).append(point)
    groups: dict[str, list[str]] = {}
    for series, mine in lines.items():
        groups.setdefault(_pattern(mine), []).append(series)
    if not groups:
        return ""
    sentences = [f"{key}: {listed(names)}." for key, names in groups.items()]
    return hold(" ".join([*sentences, f"(Aligned: mean cosine ≥ {ALIGNED:g}.)"]))


def _pattern(points: Sequence[Point]) -> str:
    if all(point.note == EXACT for point in points):
        return "Exact by construction"
    measured = [point for point in points if point.note != EXACT]
    aligned = [int(p.x) for p in measured if isinstance(p.x, float) and p.y is not None and p.y >= ALIGNED]
    against = [int(p.x) for p in measured if isinstance(p.x, float) and p.y is not None and p.y <= -ALIGNED]
    if len(aligned) == len(measured):
        return "Aligned at every l shown"
    tail = f", against the reference at l = {_ints(against)}" if against else ""
    if not aligned:
        return f"Aligned nowhere{tail}"
    if aligned == [0] and not against:
        return "Aligned at l = 0 alone, near 0 deeper"
    return f"Aligned only at l = {_ints(aligned)}{tail}"


def beneath_text(points: Sequence[Point], floor: float) -> str:
    """What panel C shows: whose reference gradient lies below the floor, and where.

    Args:
        points: The norms that the axis shows.
        floor: The floor.
    """
    lines: dict[str, list[Point]] = {}
    for point in points:
        lines.setdefault(point.series, []).append(point)
    groups: dict[str, list[str]] = {}
    for series, mine in lines.items():
        below = [int(p.x) for p in mine if isinstance(p.x, float) and p.y is not None and p.y < floor]
        if len(below) == len(mine):
            key = "Below the floor at every l shown"
        elif below:
            key = f"Below the floor at l = {_ints(below)}"
        else:
            key = "Above the floor at every l shown"
        smallest = min(p.y for p in mine if p.y is not None)
        groups.setdefault(key, []).append(f"{series} ≥ {sci(smallest)}")
    return hold(" ".join(f"{key}: {listed(names)}." for key, names in groups.items()))


def _ints(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
