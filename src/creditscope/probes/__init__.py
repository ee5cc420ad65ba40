"""Probes: what is measured of a run, every epoch or at chosen ones. The pure mathematics is in ``functional``."""
