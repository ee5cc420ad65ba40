"""What the page says of verdicts: text and signs, no numbers of any result. Each check brings its own text."""

SYMBOLS = {"passes": "✓", "fires": "✕", "undecided": "?", "not applicable": "⊘", "not measured": "–"}
VERDICT_SYMBOLS = {"trustworthy": "✓", "walked back": "✕", "incomplete": "?"}
# The colour of each, by the name of its class in the style sheet.
TONES = {
    "passes": "good",
    "fires": "bad",
    "undecided": "open",
    "not applicable": "aside",
    "not measured": "open",
    "trustworthy": "good",
    "walked back": "bad",
    "incomplete": "open",
}
# An advisory check never counts, so that it never warns in the colour of one that does.
ADVISORY_TONES = TONES | {"fires": "hint"}
VERDICT_TEXT = {
    "trustworthy": "Every required check that applies passes, on exact or bounded evidence.",
    "walked back": "At least one required check fires: the claim does not stand as made.",
    "incomplete": "Nothing fires, but something is open; what would settle it is said below.",
}
