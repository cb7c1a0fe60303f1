"""Drawings of how the operator works, made of what it computes."""
