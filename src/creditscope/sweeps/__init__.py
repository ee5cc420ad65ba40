"""From a list of specs to finished logs: presets, packing, and where the work runs."""
