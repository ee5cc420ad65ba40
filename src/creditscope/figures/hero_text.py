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
# Of so many methods a caption gives the numbers.
MOST_TOLD = 2
# For a panel in which the whole text finds no room.
SHORT = {"both": "like learning", "neither": "neither", "aligned": "aligned only", "accurate": "accurate only"}
QUADRANTS = {
    "both": "looks like learning",
    "neither": "neither",
    "aligned": "aligned, no better than chance",
    "accurate": "accurate, not aligned",
}


def pair_text(points: Sequence[Point], cells: Sequence[Cell], chance: float | None) -> str:
    """The finding of panel A: what the pair says of the methods, and who loses to its own frozen twin.

    Args:
        points: The markers.
        cells: Every cell of the logs, twins that are not drawn among them.
        chance: 1/classes; None when unknown.
    """
    if not points:
        return ""
    groups: dict[str, list[Point]] = {}
    for point in points:
        assert isinstance(point.x, float)
        assert point.y is not None
        up, learns = point.x > 0, chance is not None and point.y > chance
        key = QUADRANTS["both" if up and learns else "aligned" if up else "accurate" if learns else "neither"]
        groups.setdefault(key if chance is not None else "Γ > 0" if up else "Γ ≤ 0", []).append(point)
    sentences = [_quadrant(name, group, len(points)) for name, group in groups.items()]
    sentences.append(_twins(cells, {point.series for point in points}))
    if chance is None:
        sentences.append("The logs name no single number of classes, so no line is drawn at chance.")
    return hold(" ".join(filter(None, sentences)))


def _quadrant(name: str, group: Sequence[Point], of: int) -> str:
    """Who stands in one quadrant, and between which numbers."""
    who = listed([point.series for point in group])
    if len(group) == of:
        who = f"all {of} methods" if of > 1 else who
    x, y = [p.x for p in group if isinstance(p.x, float)], [p.y for p in group if p.y is not None]
    return f"{name[0].upper()}{name[1:]}: {who} (Γ {_span(x)}, accuracy {_span(y)})."


def _span(values: Sequence[float]) -> str:
    low, high = (f"{value:z.2f}".replace("-", "−") for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


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
    """The finding of panel B: whose cosine is worth the name at which blocks, with the numbers.

    Args:
        points: The cosines.
    """
    lines: dict[str, list[Point]] = {}
    for point in points:
        if point.y is not None and point.note != EXACT:
            lines.setdefault(point.series, []).append(point)
    exact = list(dict.fromkeys(p.series for p in points if p.note == EXACT and p.series not in lines))
    lost = {series: mine for series, mine in lines.items() if min(_values(mine)) < ALIGNED}
    sound = [series for series in lines if series not in lost]
    worst = sorted(lost, key=lambda series: max(_values(lost[series])))
    sentences = [_lost(series, lost[series]) for series in worst[:MOST_TOLD]]
    if more := worst[MOST_TOLD:]:
        sentences.append(f"Not aligned throughout either: {listed(more)}.")
    if sound:
        least = min((point for series in sound for point in lines[series]), key=lambda p: p.y or 0.0)
        who = "Every other method" if lost and len(sound) > 1 else "Every method" if len(sound) > 1 else sound[0]
        at = f" ({least.series}, l = {_state(least)})" if len(sound) > 1 else f" at l = {_state(least)}"
        sentences.append(f"{who} is aligned at every l shown: at least {_number(least.y)}{at}.")
    if exact:
        sentences.append(f"Exact by construction: {listed(exact)}.")
    return hold(" ".join([*sentences, f"(Aligned: mean cosine ≥ {ALIGNED:g}.)"])) if sentences else ""


def _lost(series: str, points: Sequence[Point]) -> str:
    """Where a method that is not aligned throughout still is, and what it has elsewhere."""
    aligned = [point for point in points if (point.y or 0.0) >= ALIGNED]
    rest = [point for point in points if (point.y or 0.0) < ALIGNED]
    against = [_state(point) for point in rest if (point.y or 0.0) <= -ALIGNED]
    beyond = f"; against the reference at l = {_ints(against)}" if against else ""
    if not aligned:
        return f"{series} is aligned nowhere: cosine {_cosines(rest)}{beyond}."
    alone = " alone" if len(aligned) == 1 else ""
    where = _ints([_state(point) for point in aligned])
    return f"{series} is aligned at l = {where}{alone} ({_cosines(aligned)}); elsewhere {_cosines(rest)}{beyond}."


def _cosines(points: Sequence[Point]) -> str:
    values = sorted(_values(points))
    return _number(values[0]) if len(values) == 1 else f"{_number(values[0])} to {_number(values[-1])}"


def _values(points: Sequence[Point]) -> list[float]:
    return [point.y for point in points if point.y is not None]


def _number(value: float | None) -> str:
    return f"{value or 0.0:z.2f}".replace("-", "−")


def _state(point: Point) -> int:
    assert isinstance(point.x, float)
    return int(point.x)


def beneath_text(points: Sequence[Point], floor: float) -> str:
    """The finding of panel C: whose reference sinks below the floor, how far and where.

    Args:
        points: The norms that the axis shows.
        floor: The floor.
    """
    lines: dict[str, list[Point]] = {}
    for point in points:
        lines.setdefault(point.series, []).append(point)
    if not lines:
        return ""
    sunk = {series: mine for series, mine in lines.items() if min(_values(mine)) < floor}
    deepest = sorted(sunk, key=lambda series: min(_values(sunk[series])))
    sentences = [_sunk(series, sunk[series], floor) for series in deepest[:MOST_TOLD]]
    if more := deepest[MOST_TOLD:]:
        sentences.append(f"Below it too: {listed(more)}.")
    above = [point for series, mine in lines.items() if series not in sunk for point in mine]
    if above:
        least = min(above, key=lambda p: p.y or 0.0)
        who = "The others stay" if sunk and len(lines) - len(sunk) > 1 else f"{least.series} stays"
        who = who if sunk else "Every reference stays" if len(lines) > 1 else f"{least.series} stays"
        named = f" ({least.series})" if not who.startswith(least.series) else ""
        sentences.append(f"{who} above the floor {sci(floor)}: the least is {sci(least.y or 0.0)}{named}.")
    return hold(" ".join(sentences))


def _sunk(series: str, points: Sequence[Point], floor: float) -> str:
    below = [point for point in points if (point.y or 0.0) < floor]
    least = min(_values(below))
    where = "every l shown" if len(below) == len(points) else f"l = {_ints([_state(point) for point in below])}"
    return f"{series} sinks below the floor at {where}, down to {sci(least)}: {sci(floor / least)} times too small."


def _ints(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
