"""What to run: presets, grids and spec files become lists of run specs."""
