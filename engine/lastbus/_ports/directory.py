"""Directory port: which services there are now."""

from __future__ import annotations

from abc import ABC, abstractmethod


class ServiceDirectory(ABC):
    """Keeps a text for each instance of each service until its time is over."""

    @abstractmethod
    async def announce(self, service_type: str, instance_id: str, text: str, ttl: float) -> None:
        """Keep `text` for `ttl` seconds, in place of an older one."""

    @abstractmethod
    async def withdraw(self, service_type: str, instance_id: str) -> bool:
        """Forget an instance; False if it was not there."""

    @abstractmethod
    async def list_types(self) -> list[str]:
        """The service types that have an instance, sorted."""

    @abstractmethod
    async def list_texts(self, service_type: str) -> list[str]:
        """The texts of the instances of one type, sorted by instance id."""

    async def aclose(self) -> None:
        """Let go of connections; harmless when called again. Closing does not withdraw anything."""
