"""Fixtures of the close tests."""

from tests.close.hygiene import hygiene as hygiene
