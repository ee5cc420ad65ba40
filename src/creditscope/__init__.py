"""creditscope."""
