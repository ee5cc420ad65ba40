"""One check a file: what it measures, when it fires, and what it says."""
