"""Probes: what is measured of a run. Pure maths in ``functional``; a cheap set every epoch, a dear set now and then."""
