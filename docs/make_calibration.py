"""Write calibration.md and its picture from calibration.json, or simulate that anew.

python docs/make_calibration.py --simulate          # some minutes on one core; the same counts every time
python docs/make_calibration.py --simulate uneven   # one table alone
python docs/make_calibration.py
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from itertools import product
from typing import Any, Literal

from error_rates import PP, Accuracies, Credits, Rates, allowed, seen
from matplotlib.figure import Figure
from page_data import DOCS

from creditscope.figures.style import BLUE, GREY, INCHES, INK, RED, SMALL, styled
from creditscope.protocol.checks.depth import Depth
from creditscope.protocol.checks.direction import Direction
from creditscope.records.table import Table

SCRIPT = "make_calibration.py"
STORED = DOCS / "calibration.json"
PICTURE = DOCS / "figures" / "calibration.png"
MADE = f"<!-- Written by `python docs/{SCRIPT}` from docs/calibration.json. Change the script, not this page. -->"
SEEDS = (1, 3, 5, 10)
TRIALS, POWER_TRIALS = 4000, 600
SHARE = 0.8
ALIGNED = 0.15
Made = Credits | Accuracies
Asked = Literal["passes", "fires"]


@dataclass(frozen=True)
class Part:
    """One table of error rates.

    Args:
        key: Its name in the file.
        title: What is asked.
        about: What is made up.
        made: The settings, for each number of seeds.
        judged: Which rates of them: a method's name.
        asked: What is counted.
        promise: The rate that is promised; a setting beyond the promise has none.
        least: Whether the rate must be at least the promised one, not at most.
    """

    key: str
    title: str
    about: str
    made: tuple[Made, ...]
    judged: str
    asked: tuple[Asked, ...]
    promise: float
    least: bool = False

    def simulate(self, trials: int = TRIALS) -> list[Rates]:
        """Every setting, each with random numbers of its own."""
        return [rates_of(made, self.judged, trials, seed) for seed, made in enumerate(self.made)]


def rates_of(made: Made, judged: str, trials: int, seed: int) -> Rates:
    return getattr(made, judged)(trials, seed)


def _credits(
    cosine: float, spreads: Sequence[float], correlations: Sequence[float], **more: Any
) -> tuple[Credits, ...]:
    return tuple(
        Credits(cosine, null_sd, spread, seeds, correlation=correlation, **more)
        for null_sd, spread, correlation, seeds in product((0.02, 0.05, 0.15), spreads, correlations, SEEDS)
    )


def _widest(cosine: float, spread: float, **more: Any) -> tuple[Credits, ...]:
    """The null that hides most, where an error is likeliest."""
    return tuple(
        Credits(cosine, 0.15, spread, seeds, correlation=correlation, **more)
        for correlation, seeds in product((0.0, 0.94), SEEDS)
    )


def _accuracies(
    margin: float, images: Iterable[int], opponents: Iterable[int] = (1,), **more: Any
) -> tuple[Accuracies, ...]:
    return tuple(
        Accuracies(margin, seeds, seed_sd, size, count, **more)
        for size, count, seed_sd, seeds in product(images, opponents, (0.001, 0.003, 0.01), SEEDS)
    )


PARTS = (
    Part(
        "redrawn",
        "Direction passes a method whose feedback was redrawn",
        "The credit knows nothing of the gradient. Promised: at most 1 %, and at most 2 % where seeds spread three "
        "times as wide as the null.",
        _credits(0.0, (1, 3), (0.0, 0.94)),
        "rates",
        ("passes",),
        0.02,
    ),
    Part(
        "threshold",
        f"Direction passes a method at exactly {Direction.threshold:g} in every block",
        "Promised: at most 2.5 %, what a 95 % interval leaves on one side.",
        _credits(Direction.threshold, (1, 3), (0.0, 0.94)),
        "rates",
        ("passes",),
        0.025,
    ),
    Part(
        "aligned",
        f"Direction fires on a method at {ALIGNED:g} in every block",
        "Promised: at most 2.5 % where seeds spread up to twice as wide as the null.",
        _credits(ALIGNED, (1, 2), (0.0, 0.94)),
        "rates",
        ("fires",),
        0.025,
    ),
    Part(
        "blind",
        "Direction fires on a method at 0 in every block",
        "Promised: at least 90 % from three seeds on, null sd .02, however alike the blocks are.",
        tuple(
            Credits(0.0, 0.02, 1, seeds, blocks, correlation)
            for blocks, correlation, seeds in product((3, 11), (0.0, 0.94, 1.0), SEEDS)
        ),
        "rates",
        ("fires",),
        0.9,
        least=True,
    ),
    Part(
        "depth",
        f"Depth at a true margin of exactly {Depth.threshold:g} pp",
        "The margin is that over all images that there are: the test images are drawn anew in every trial. Promised: "
        "at most 2.5 % each way.",
        (*_accuracies(0.02, (1000,), (1, 2)), *_accuracies(0.02, (10_000,))),
        "depth_rates",
        ("passes", "fires"),
        0.025,
    ),
    Part(
        "harm",
        "A run is called worse than its opponent at a true margin of exactly −1 pp",
        "Harm needs no positive control. Promised: at most 2.5 %.",
        _accuracies(-0.01, (1000,)),
        "harm_rates",
        ("fires",),
        0.025,
    ),
    Part(
        "learning",
        "Learning at exactly 1 pp above chance",
        "Ten classes. Where the labels of the test images are drawn too, classes are unequal and balanced accuracy is "
        "judged. Promised: at most 2.5 % each way.",
        (*_accuracies(0.01, (1000,)), *_accuracies(0.01, (1000,), unequal=True)),
        "learning_rates",
        ("passes", "fires"),
        0.025,
    ),
)
# What the rules do not promise, measured all the same.
BEYOND = (
    Part(
        "alike-passes",
        "Redrawn, where seeds move all blocks alike and redraws do not",
        "How many independent blocks some blocks are worth is read from the redraws. Here these say independent, and "
        "seeds move all blocks as one. Compared with 2 %.",
        tuple(Credits(0.0, 0.15, 3, seeds, blocks, 0.0, over_seeds=1.0) for blocks, seeds in product((3, 11), SEEDS)),
        "rates",
        ("passes",),
        0.02,
    ),
    Part(
        "alike-fires",
        f"At {ALIGNED:g} in every block, where seeds move all blocks alike and redraws do not",
        "Compared with 2.5 %.",
        tuple(
            Credits(ALIGNED, null_sd, 2, seeds, 11, 0.0, over_seeds=1.0)
            for null_sd, seeds in product((0.05, 0.15), SEEDS)
        ),
        "rates",
        ("fires",),
        0.025,
    ),
    Part(
        "wide",
        f"At {ALIGNED:g} in every block, where seeds spread three times as wide as the null",
        "Compared with 2.5 %.",
        _credits(ALIGNED, (3,), (0.0, 0.94)),
        "rates",
        ("fires",),
        0.025,
    ),
    Part(
        "uneven",
        f"At {ALIGNED:g} in every block, where one block spreads five times as wide as the others",
        "The degrees of freedom of an interval are those of all blocks together. Null sd .15. Compared with 2.5 %.",
        _widest(ALIGNED, 2, uneven=5.0),
        "rates",
        ("fires",),
        0.025,
    ),
    Part(
        "tails-passes",
        "Redrawn, where a seed is now and then far off",
        "Seeds are drawn from Student's t with three degrees of freedom. Null sd .15. Compared with 2 %.",
        _widest(0.0, 3, tails=3),
        "rates",
        ("passes",),
        0.02,
    ),
    Part(
        "tails-fires",
        f"At {ALIGNED:g} in every block, where a seed is now and then far off",
        "As above. Compared with 2.5 %.",
        _widest(ALIGNED, 2, tails=3),
        "rates",
        ("fires",),
        0.025,
    ),
)
NAMES = {
    "null_sd": "null sd",
    "spread": "seed sd / null sd",
    "blocks": "blocks",
    "correlation": "correlation of blocks",
    "images": "test images",
    "opponents": "opponents",
    "seed_sd": "seed sd of accuracy (pp)",
    "unequal": "labels drawn",
}


def simulate(keys: Sequence[str] = ()) -> dict[str, Any]:
    """Every number of the page; or of some tables anew, the others as they are stored.

    Args:
        keys: The tables.
    """
    if keys:
        parts = {part.key: part for part in (*PARTS, *BEYOND)}
        again = {key: [asdict(rates) for rates in parts[key].simulate()] for key in keys}
        return {**stored(), "rates": {**stored()["rates"], **again}}
    return {
        "rates": {part.key: [asdict(rates) for rates in part.simulate()] for part in (*PARTS, *BEYOND)},
        "cosines": _cosines(),
        "margins": _margins(),
        "curves": _curves(),
    }


def _cosines() -> list[dict[str, Any]]:
    """The cosine that is seen in most trials, by seeds and null."""
    rows = []
    for null_sd, spread, seeds in product((0.02, 0.05, 0.1, 0.15), (1, 2), SEEDS[1:]):

        def says(asked: Asked, cosine: float, fixed: tuple[float, float, int] = (null_sd, spread, seeds)) -> float:
            return Credits(cosine, *fixed, correlation=0.94).rates(POWER_TRIALS).share(asked)

        passes = seen(lambda cosine: says("passes", cosine), Direction.threshold, 1.0)
        fires = seen(lambda cosine: says("fires", cosine), Direction.threshold, -1.0)
        rows.append({"null_sd": null_sd, "spread": spread, "seeds": seeds, "passes": passes, "fires": fires})
    return rows


def _margins() -> list[dict[str, Any]]:
    """The margin that is seen in most trials, by seeds, their spread, and test images."""
    rows = []
    for images, seed_sd, seeds in product((1000, 2000, 10_000), (0.001, 0.003, 0.01), SEEDS[1:]):

        def says(asked: Asked, margin: float, fixed: tuple[int, float, int] = (seeds, seed_sd, images)) -> float:
            return Accuracies(margin, *fixed).depth_rates(POWER_TRIALS // 2).share(asked)

        limit = Depth.threshold / PP
        passes = seen(lambda margin: says("passes", margin), limit, 0.3)
        fires = seen(lambda margin: says("fires", margin), limit, -0.3)
        rows.append({"images": images, "seed_sd": seed_sd, "seeds": seeds, "passes": passes, "fires": fires})
    return rows


def _curves() -> dict[str, list[dict[str, Any]]]:
    """How often each check decides, over the true value."""
    cosines = [round(-0.2 + 0.025 * step, 4) for step in range(29)]
    margins = [round(-0.03 + 0.005 * step, 4) for step in range(27)]
    return {
        "direction": [
            {"value": value, "seeds": seeds, **asdict(Credits(value, 0.05, 1, seeds, correlation=0.94).rates(400))}
            for seeds, value in product(SEEDS[1:], cosines)
        ],
        "depth": [
            {"value": value, "seeds": seeds, **asdict(Accuracies(value, seeds, 0.003, 2000).depth_rates(400))}
            for seeds, value in product(SEEDS[1:], margins)
        ],
    }


@cache
def stored() -> dict[str, Any]:
    """What was simulated."""
    return json.loads(STORED.read_text(encoding="utf-8"))


def counted(part: Part) -> list[Rates]:
    """The stored counts of a part, one for each of its settings."""
    rates = [Rates(**each) for each in stored()["rates"][part.key]]
    assert len(rates) == len(part.made), f"run docs/{SCRIPT} --simulate"
    return rates


def promised(part: Part, made: Made) -> float:
    """The rate promised for one setting: 1 % for redrawn feedback unless seeds spread very wide."""
    return 0.01 if part.key == "redrawn" and isinstance(made, Credits) and made.spread < 3 else part.promise


def broken(part: Part) -> list[tuple[Made, Asked, Rates]]:
    """The settings whose rate lies beyond the promised one by more than the Monte-Carlo error allows."""
    found = []
    for made, rates in zip(part.made, counted(part), strict=True):
        for asked in part.asked:
            promise = promised(part, made)
            if part.least:
                bad = made.seeds > 1 and rates.share(asked) < 2 * promise - allowed(promise, rates.trials)
            else:
                bad = rates.share(asked) > allowed(promise, rates.trials)
            if bad:
                found.append((made, asked, rates))
    return found


def broken_together(part: Part) -> list[tuple[int, Asked, Rates]]:
    """The numbers of seeds at which all settings of a part together lie beyond the promised rate."""
    found = []
    for seeds, asked in product(SEEDS[1:], part.asked):
        each = [rates for made, rates in zip(part.made, counted(part), strict=True) if made.seeds == seeds]
        rates = Rates(*(sum(getattr(one, name) for one in each) for name in ("trials", "passes", "fires")))
        if not part.least and rates.share(asked) > allowed(part.promise, rates.trials):
            found.append((seeds, asked, rates))
    return found


def build() -> str:
    """The whole page."""
    trials = counted(PARTS[0])[0].trials
    return (
        "\n\n".join(
            [
                MADE,
                INTRO.format(trials=trials),
                "## What is promised",
                *(text for part in PARTS for text in _section(part)),
                "## Where it falls short",
                _short(),
                BESIDE,
                *(text for part in BEYOND for text in _section(part)),
                "## What can be seen",
                SEEN.format(share=f"{100 * SHARE:.0f}"),
                "```{image} figures/calibration.png\n:alt: how often direction and depth decide by true value\n```",
                _cosine_table(),
                _margin_table(),
                LEFT,
            ]
        )
        + "\n"
    )


INTRO = f"""\
# Calibration

The checks of `standard` version 2 that judge several seeds together can be wrong by chance. How often was found by
simulation: runs are made up whose truth is known, and judged by the functions of the protocol itself. A cell of a
table is the share of {{trials:,}} such studies, in per cent, ± its Monte-Carlo standard error; **bold** lies beyond
what is promised by more than three of them. One seed decides nothing, hence the zeros of the first column. The tests
repeat this page with fewer trials. `scale`, `reference`, `fidelity` and `movement` are bounds without an error rate.

Cosines are normal around the true one; three blocks are tested unless a table says otherwise, with {Credits().redraws}
redraws. An image is answered rightly where a normal number exceeds a bound: {100 * Accuracies().shared:.0f} % of its
variance is what the image is to every net, {100 * Accuracies().method:.0f} % what it is to the nets of one method, and
the rest belongs to one net alone. An opponent reaches {100 * Accuracies().base:.0f} %."""

BESIDE = """\
These settings lie outside of what is promised, and were simulated too:"""

SEEN = """\
The smallest true cosine and margin that pass, and the largest that fire, in {share} % of studies: *none* where not even
a cosine of 1 does. All blocks have the same cosine and are correlated at .94; there is one opponent."""

LEFT = """\
## What was not simulated

- Opponents of unequal strength: their rates should lie between those of one opponent and of two equal ones.
- Images that depend on each other, as tokens of one text do."""


def _section(part: Part) -> tuple[str, ...]:
    return f"### {part.title}", part.about, _rate_table(part)


def _short() -> str:
    cells = sum(len(part.made) * len(part.asked) for part in PARTS)
    alone = [(part, *each) for part in PARTS for each in broken(part)]
    together = [(part, *each) for part in PARTS for each in broken_together(part)]
    lines = [
        f"Of the {cells} rates above {len(alone) or 'none'} {'lies' if len(alone) < 2 else 'lie'} beyond the promise "
        "by more than three standard errors" + (":" if alone else ".")
    ]
    for part, made, asked, rates in alone:
        where = ", ".join(f"{name} {text}" for name, text in _settings(part, made))
        lines.append(f"- {part.title}: {asked} {_percent(rates, asked)} % ({counted_seeds(made.seeds)}, {where})")
    if together:
        lines += ["", "All settings of a table taken together do so here:", ""]
    for part, seeds, asked, rates in together:
        lines.append(
            f"- {part.title}: {asked} {_percent(rates, asked)} % with {counted_seeds(seeds)}, promised "
            f"{100 * part.promise:g} %"
        )
    return "\n".join(lines)


def counted_seeds(seeds: int) -> str:
    """So many seeds, in words."""
    return f"{seeds} seed{'s' if seeds > 1 else ''}"


def _rate_table(part: Part) -> str:
    groups: dict[tuple[tuple[str, str], ...], list[tuple[Made, Rates]]] = {}
    for made, rates in zip(part.made, counted(part), strict=True):
        groups.setdefault(_settings(part, made), []).append((made, rates))
    bad = {(made, asked) for made, asked, _ in broken(part)}
    names = [name for name, _ in next(iter(groups))]
    tables = []
    for asked in part.asked:
        rows = tuple(
            (*(text for _, text in settings), *(_cell(rates, asked, (made, asked) in bad) for made, rates in each))
            for settings, each in groups.items()
        )
        seeds = tuple(f"{counted_seeds(made.seeds)}: {asked} (%)" for made, _ in next(iter(groups.values())))
        tables.append(Table((*names, *seeds), rows, ("right",) * (len(names) + len(seeds))).to_markdown().strip())
    return "\n\n".join(tables).replace("\\*\\*", "**")


def _settings(part: Part, made: Made) -> tuple[tuple[str, str], ...]:
    """What sets a setting apart within its part, the number of seeds aside."""
    differ = [
        field.name
        for field in fields(made)
        if field.name in NAMES and len({getattr(other, field.name) for other in part.made}) > 1
    ]
    return tuple((NAMES[name], _plain(name, getattr(made, name))) for name in differ)


def _plain(name: str, value: float | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{PP * value:g}" if name == "seed_sd" else f"{value:,g}" if value < 1000 else f"{value:,}"


def _cell(rates: Rates, asked: Asked, bad: bool) -> str:
    text = _percent(rates, asked)
    return f"**{text}**" if bad else text


def _percent(rates: Rates, asked: Asked) -> str:
    return f"{100 * rates.share(asked):.1f} ± {100 * rates.error(asked):.1f}"


def _cosine_table() -> str:
    rows = _power_rows(stored()["cosines"], ("null_sd", "spread"), lambda value: f"{value:+.2f}")
    columns = (
        "null sd",
        "seed sd / null sd",
        *(f"{n} seeds: {asked}" for n in SEEDS[1:] for asked in ("pass", "fire")),
    )
    return "### Cosine\n\n" + Table(columns, rows, ("right",) * len(columns)).to_markdown().strip()


def _margin_table() -> str:
    rows = _power_rows(stored()["margins"], ("images", "seed_sd"), lambda value: f"{PP * value:+.1f}")
    columns = (
        *("test images", "seed sd of accuracy (pp)"),
        *(f"{n} seeds: {asked} (pp)" for n in SEEDS[1:] for asked in ("pass", "fire")),
    )
    return "### Margin\n\n" + Table(columns, rows, ("right",) * len(columns)).to_markdown().strip()


def _power_rows(rows: Sequence[dict[str, Any]], keys: tuple[str, ...], write: Any) -> tuple[tuple[str, ...], ...]:
    found: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        cells = found.setdefault(tuple(_plain(key, row[key]) for key in keys), [])
        cells += ["none" if row[asked] is None else write(row[asked]) for asked in ("passes", "fires")]
    return tuple((*settings, *cells) for settings, cells in found.items())


def draw() -> Figure:
    """How often direction and depth decide, over the true value."""
    with styled():
        figure = Figure(figsize=(INCHES["two"], 2.2), layout="constrained")
        panels = (
            ("direction", "true cosine of every block", 1.0, Direction.threshold, "direction: null sd .05"),
            ("depth", "true margin (pp)", PP, Depth.threshold, "depth: 2,000 test images, seed sd 0.3 pp"),
        )
        for axes, (name, label, scale, limit, title) in zip(figure.subplots(1, 2), panels, strict=True):
            for seeds, style in zip(SEEDS[1:], (":", "--", "-"), strict=True):
                rows = [row for row in stored()["curves"][name] if row["seeds"] == seeds]
                values = [scale * row["value"] for row in rows]
                for asked, color in (("passes", BLUE), ("fires", RED)):
                    shares = [row[asked] / row["trials"] for row in rows]
                    axes.plot(values, shares, color=color, linestyle=style, label=f"{asked}, {seeds} seeds")
            axes.axvline(limit, color=INK, linewidth=0.6)
            axes.axhline(SHARE, color=GREY, linewidth=0.5, linestyle=":")
            axes.set(xlabel=label, ylim=(-0.02, 1.02))
            axes.set_title(title, loc="left")
        figure.axes[0].set_ylabel("share of studies")
        figure.axes[1].legend(fontsize=SMALL, loc="center right", handlelength=2.2)
    return figure


if __name__ == "__main__":
    if "--simulate" in sys.argv[1:]:
        again = simulate(sys.argv[sys.argv.index("--simulate") + 1 :])
        STORED.write_text(json.dumps(again, indent=1) + "\n", encoding="utf-8")
        stored.cache_clear()
    draw().savefig(PICTURE, dpi=200)
    (DOCS / "calibration.md").write_text(build(), encoding="utf-8")
