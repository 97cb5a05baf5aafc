"""Shapes: the ways in which somebody can wait for a close, and what the guard says of each, on any CPython."""
