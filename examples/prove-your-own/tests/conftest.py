"""The marker that ties a test to the guarantees it pins."""

pytest_plugins = ["lastbus.proof.pytest_plugin"]
