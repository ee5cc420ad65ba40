"""Whole studies in one go: train, audit, draw, report."""
