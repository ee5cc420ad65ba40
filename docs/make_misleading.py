"""Write misleading.md and its pictures: what the usual pair says of seven cases, and what creditscope says."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from misleading_cases import Bars, Case, cases
from page_data import DOCS

from creditscope.figures.style import BLUE, GREY, INCHES, INK, ORANGE, RED, SMALL, styled
from creditscope.records.table import Table

SCRIPT = "make_misleading.py"
MADE = f"<!-- Written by `python docs/{SCRIPT}`, which computes every case. Change the script, not this page. -->"
PICTURES = DOCS / "figures" / "gallery"


def build() -> str:
    """The whole page."""
    rows = tuple(
        (case.title, f"{case.accuracy:.2f}", f"{case.cosine:+.2f}", f"{case.usual}{', ' * bool(case.also)}{case.also}")
        for case in cases()
    )
    parts = [
        MADE,
        "# Misleading cases",
        "Papers on learning without backpropagation show test accuracy and one cosine between the method's credit and "
        "the true gradient. Here are seven ways in which that pair misleads, each computed when this page was written: "
        "a small network on the bundled images, or the committed CIFAR-10 logs. Each case has a test.",
        Table(("case", "accuracy", "cosine", "the usual pair says"), rows, ("left", "right", "right")).to_markdown(),
        "In the pictures orange is what misleads and red what it hides.",
    ]
    for case in cases():
        also = f", {case.also}" if case.also else ""
        parts += [
            f"## {case.title}",
            case.done,
            f"```{{image}} figures/gallery/{case.stem}.png\n:alt: {case.title}\n```",
            f"**The usual pair**: accuracy {case.accuracy:.2f}, where a guess has {case.chance:.2f}, and a cosine of "
            f"{case.cosine:+.2f} ({case.cosine_is}): *{case.usual}*{also}.",
            f"**creditscope**: {case.ours}",
        ]
    return "\n\n".join(parts) + "\n"


def values() -> str:
    """Every number that is drawn, as CSV."""
    lines = ["case,panel,label,value"]
    for case in cases():
        drawn = {"accuracy": case.accuracy, "cosine": case.cosine}
        lines += [f"{case.stem},pair,{label},{value:.4g}" for label, value in drawn.items()]
        lines += [f"{case.stem},beneath,{_flat(label)},{value:.4g}" for label, value in case.beneath.values.items()]
    return "\n".join(lines) + "\n"


def draw(case: Case) -> Figure:
    """The pair on the left, what lies beneath on the right."""
    with styled():
        figure = Figure(figsize=(INCHES["two"], 2.1), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.6))
        _pair(left, case)
        _beneath(right, case.beneath)
        figure.suptitle(case.title, x=0.01, ha="left", fontweight="bold")
    return figure


def _pair(axes: Axes, case: Case) -> None:
    _bars(axes, {"accuracy": case.accuracy, "cosine": case.cosine}, [BLUE, ORANGE])
    axes.plot([-0.45, 0.45], [case.chance] * 2, color=INK, linestyle="--", linewidth=0.8)
    axes.text(0.47, case.chance, "chance", fontsize=SMALL, va="center")
    axes.set_ylim(min(0.0, case.cosine) - 0.05, 1.19)
    axes.set_title(f"The usual pair: {case.usual}", loc="left")


def _beneath(axes: Axes, bars: Bars) -> None:
    _bars(axes, bars.values, [ORANGE if label in bars.misleading else RED for label in bars.values])
    low, high = min(0.0, *bars.values.values()), max(*bars.values.values(), bars.line or 0.0)
    if bars.log:
        axes.set_yscale("log")
        axes.set_ylim(min(bars.values.values()) / 10, 100 * high)
    else:
        axes.set_ylim(low - 0.16 * (high - low) * (low < 0), high + 0.2 * (high - low))
    if bars.line:
        # Room on the right for the name of the line.
        axes.set_xlim(right=len(bars.values) - 0.1)
        axes.axhline(bars.line, color=INK, linestyle="--", linewidth=0.8, zorder=0.9)
        place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate(bars.line_label, (1, bars.line), (-2, 2), **place, ha="right", fontsize=SMALL)
    axes.set_title(f"Beneath: {bars.title}", loc="left")


def _bars(axes: Axes, values: dict[str, float], colors: list[str]) -> None:
    drawn = axes.bar(list(values), list(values.values()), width=0.55, color=colors, edgecolor=INK, linewidth=0.5)
    labels = axes.bar_label(drawn, [_short(value) for value in values.values()], fontsize=SMALL, padding=2)
    for label in labels:
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.6})
    axes.axhline(0, color=GREY, linewidth=0.5)
    axes.grid(True, axis="y")
    axes.margins(x=0.12)


def _short(value: float) -> str:
    return (f"{value:.1g}" if 0 < abs(value) < 0.01 else f"{value:.2f}").replace("-", "−")


def _flat(label: str) -> str:
    return label.replace("\n", " ").replace(",", "")


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for each in cases():
        draw(each).savefig(PICTURES / f"{each.stem}.png", dpi=200)
    (PICTURES / "values.csv").write_text(values(), encoding="utf-8")
    (DOCS / "misleading.md").write_text(build(), encoding="utf-8")
