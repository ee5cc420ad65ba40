"""Logs for the report, and a reader of the page that knows nothing of how it was made."""

import json
from html.parser import HTMLParser

from protocol import cases

from creditscope.records import LogWriter
from creditscope.records.measured import Cosines, Norms, Nudge, Rho


class Page(HTMLParser):
    """What a reader of the file sees: its text, its tables, its attributes, and the content of its scripts."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.words, self.attributes, self.scripts, self.styles, self.tables, self.tags = [], [], [], [], [], []
        self._open = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag in ("script", "style"):
            self._open.append(tag)
            (self.scripts if tag == "script" else self.styles).append([dict(attrs), ""])
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._open.append("cell")
        if tag == "br" and self._open[-1:] == ["cell"]:
            self.tables[-1][-1][-1] += "\n"

    def handle_endtag(self, tag):
        if tag in ("script", "style", "td", "th"):
            self._open.pop()

    def handle_data(self, data):
        if self._open[-1:] == ["script"]:
            self.scripts[-1][1] += data
        elif self._open[-1:] == ["style"]:
            self.styles[-1][1] += data
        else:
            self.words.append(data)
            if self._open[-1:] == ["cell"]:
                self.tables[-1][-1][-1] += data

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    @property
    def data(self):
        return json.loads(next(text for attrs, text in self.scripts if attrs.get("id") == "data"))

    def table(self, *columns):
        """The first table whose headings begin with these, as a list of dictionaries."""
        found = next(t for t in self.tables if tuple(t[0][: len(columns)]) == columns)
        return [dict(zip(found[0], row, strict=True)) for row in found[1:]]


def richer(log):
    """A log of the protocol's cases with the fields that only the report shows."""
    shift = (log.spec.seed or 0) / 1e5

    def rows(row):
        published = [value + shift for value in (0.31, 0.02, 0.01, -0.02, 0.0)]
        return {
            "hidden": Norms(median=[value * (1 + shift) for value in row.hidden.median], n=1024),
            "cosine_published": Cosines(mean=published, status=["ok"] * 5),
            "test_loss": 2.3 - 0.1 * row.epoch + shift,
            "train_loss": 2.2 - 0.1 * row.epoch + shift,
        }

    same = {"control": [1.0] * 5, "random": [0.0] * 5, "directions": 32, "epsilon": [1e-3] * 5}
    rho = Rho(credit=[0.5 + shift, 0.4, 0.3, 0.2, 0.1], **same)
    steps = {"reference": [-0.1] * 5, "random": [0.0] * 5, "efficiency": [0.1, 0.2, 0.3, -0.1, -0.2]}
    nudge = Nudge(credit=[-0.01 - shift, -0.02, -0.03, 0.01, 0.02], eta=0.01, **steps)
    return cases.edit(log, rows, rho=rho, nudge=nudge)


def write(logs, folder):
    """Write logs as JSONL files."""
    for log in logs:
        writer = LogWriter(folder / log.name)
        writer.create(log.header)
        for row in list(log.rows())[1:]:
            writer.append(row)


def suite(**fields):
    """A trustworthy method, a collapsed one, and their frozen twins, three seeds each."""
    made = [
        *cases.healthy("bp", **fields),
        *cases.cell("dfa-rms", cases.COLLAPSED, **fields),
        *cases.cell("dfa-rms@frozen", cases.FROZEN, **fields),
    ]
    return [richer(log) for log in made]
