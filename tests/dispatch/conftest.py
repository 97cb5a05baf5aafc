"""Fixtures of the dispatch tests."""

from tests.close.hygiene import hygiene as hygiene
