"""What the page says of verdicts: text and signs, no numbers of any result. Each check brings its own text."""

SYMBOLS = {"passes": "✓", "fires": "✕", "undecided": "?", "not measured": "–"}
VERDICT_SYMBOLS = {"trustworthy": "✓", "walked back": "✕", "incomplete": "?"}
VERDICT_TEXT = {
    "trustworthy": "Every required check passes on exact or bounded evidence.",
    "walked back": "At least one required check fires: the claim does not stand as made.",
    "incomplete": "Nothing fires, but something is open; what would settle it is said below.",
}
