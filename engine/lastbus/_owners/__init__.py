"""Ownership templates: background work of your own, with the rule that the bus itself follows."""
