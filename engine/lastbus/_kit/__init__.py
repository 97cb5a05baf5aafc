"""The kit behind `lastbus.testing`: a manual clock, gates, real servers, benchmarks."""
