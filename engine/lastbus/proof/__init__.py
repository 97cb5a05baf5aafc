"""The proof: ties every documented guarantee to a test, and every such test to a defect that it notices.

Imports nothing from the rest of lastbus, so any project can be proven with it.

Keeps: MUT-68.
"""
