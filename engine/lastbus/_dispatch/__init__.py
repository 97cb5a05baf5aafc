"""Dispatch: one event to its handlers. It knows no back end and nothing about closing."""
