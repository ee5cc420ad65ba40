"""Pure maths on tensors, one quantity a file: float64 where a verdict rests on it, no eps that hides a zero."""
