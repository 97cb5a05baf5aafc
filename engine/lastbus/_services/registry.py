"""Registry: says that a service is here, again and again, until it leaves; and who else is."""

from __future__ import annotations

import json
import logging
import os
import socket
from dataclasses import asdict, dataclass
from typing import Final
from uuid import uuid4

from lastbus._clock import SYSTEM_CLOCK, Clock
from lastbus._model.numbers import check_positive_seconds
from lastbus._ports.directory import ServiceDirectory
from lastbus._services.periodic import Periodic

logger = logging.getLogger("lastbus.services")


@dataclass(frozen=True)
class ServiceInfo:
    """One instance of a service: its type, its id, its process, and since when (seconds since the epoch) it runs."""

    service_type: str
    instance_id: str
    pid: int
    started_at: float


class ServiceRegistry(Periodic):
    """Between `start` and `stop`, `directory` lists one instance of `service_type`.

    It is announced for `ttl` seconds every `heartbeat_interval` seconds: a process that dies is listed for as long as
    `ttl`.

    Keeps: FLOW-22.
    """

    name = "service registry"

    def __init__(
        self,
        directory: ServiceDirectory,
        service_type: str,
        *,
        instance_id: str | None = None,
        ttl: float = 30.0,
        heartbeat_interval: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(heartbeat_interval, clock)
        self._directory: Final = directory
        self._ttl: Final = check_positive_seconds("ttl", ttl)
        self.info: Final = ServiceInfo(
            service_type=service_type,
            instance_id=instance_id or f"{socket.gethostname()}-{uuid4().hex[:8]}",
            pid=os.getpid(),
            started_at=(clock or SYSTEM_CLOCK).time(),
        )

    async def stop(self) -> None:
        """Stop announcing, and take the instance off the list; if that fails it leaves the list by itself.

        Keeps: FLOW-22.
        """
        await super().stop()
        try:
            await self._directory.withdraw(self.info.service_type, self.info.instance_id)
        except Exception as error:
            logger.warning("service %s could not be taken off the list: %s", self.info.instance_id, error)

    async def get_service_types(self) -> list[str]:
        """The types of services that are here, whole, whatever characters they hold."""
        return await self._directory.list_types()

    async def get_services(self, service_type: str) -> list[ServiceInfo]:
        """The instances of one type that are here."""
        return [ServiceInfo(**json.loads(text)) for text in await self._directory.list_texts(service_type)]

    async def _round(self) -> None:
        """Keeps: FLOW-22."""
        text = json.dumps(asdict(self.info))
        await self._directory.announce(self.info.service_type, self.info.instance_id, text, self._ttl)
