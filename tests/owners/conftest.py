"""Fixtures of the tests of the ownership templates."""

from tests.close.hygiene import hygiene as hygiene
