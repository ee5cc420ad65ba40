"""Write docs/rules.md from what the rules say of themselves.

python docs/make_rules.py
"""

from pathlib import Path

from creditscope.rules.cards import card_lines, cards, listing

HERE = Path(__file__).parent
SCRIPT = "make_rules.py"

INTRO = """\
# Rules

Every credit rule that ships, with its identity card: what it is, what a block needs for it, which identities prove
that it is the rule of that name, what was reported of it, and where public code of that name does something else.
`creditscope rules` lists them, `creditscope rules kp` prints one card. e is ∂loss/∂logits, t the one-hot label, h_l the
states, W the weight of a linear map and B what stands in its place on the way back, η the learning rate, λ a decay.

Reported numbers are quoted to compare with; settings differ, and nothing here was tuned towards them. This page is
written by `docs/make_rules.py`.
"""


def build() -> str:
    """The page."""
    found = cards()
    parts = [INTRO, listing(found).to_markdown()]
    for each in found:
        lines = [f"## {each['name']}"]
        for heading, said in card_lines(each).items():
            lines.append(f"**{heading.capitalize()}**")
            lines.append("\n".join(f"- {_escaped(line)}" for line in said))
        parts.append("\n\n".join(lines))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _escaped(line: str) -> str:
    return "".join("\\" + char if char in "\\|*_[]#~`<>" else char for char in line)


if __name__ == "__main__":
    (HERE / "rules.md").write_text(build(), encoding="utf-8")
