"""Services around a bus: they resume suspended flows by events. `lastbus.services` is the door."""
