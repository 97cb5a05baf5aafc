"""The verbs of the command line, one module per noun; each imports what it needs when it runs.

Keeps: MUT-68.
"""
