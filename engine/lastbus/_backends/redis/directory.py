"""Service directory in Redis: one text for each instance, under `{prefix}{type}:{instance}`, for its TTL."""

from __future__ import annotations

from typing import Final

from redis.asyncio import Redis

from lastbus._backends.redis.connection import RedisBacked, RedisConnection
from lastbus._backends.redis.keys import check_prefix
from lastbus._model.names import check_name
from lastbus._model.numbers import check_positive_seconds
from lastbus._ports.directory import ServiceDirectory

REGISTRY_PREFIX: Final = "plaita:registry:"


class RedisServiceDirectory(RedisBacked, ServiceDirectory):
    """Keeps services by the server's clock. Every method raises `EventStorageError` when the server fails.

    `client` is a redis-py asyncio client of yours, which `aclose` closes; `connection` shares that of a store.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        key_prefix: str = REGISTRY_PREFIX,
        client: Redis | None = None,
        *,
        connection: RedisConnection | None = None,
    ) -> None:
        super().__init__(redis_url, client, connection)
        self._prefix: Final = check_prefix("key_prefix", key_prefix)

    async def announce(self, service_type: str, instance_id: str, text: str, ttl: float) -> None:
        """Keep `text` for `ttl` seconds, in place of an older one."""
        milliseconds = round(check_positive_seconds("ttl", ttl) * 1000)
        await self._connection.command("SET", self._key(service_type, instance_id), text, "PX", milliseconds)

    async def withdraw(self, service_type: str, instance_id: str) -> bool:
        """Forget an instance; False if it was not there."""
        return bool(await self._connection.command("DEL", self._key(service_type, instance_id)))

    async def list_types(self) -> list[str]:
        """The service types that have an instance, sorted."""
        return sorted({service_type for service_type, _ in await self._services()})

    async def list_texts(self, service_type: str) -> list[str]:
        """The texts of the instances of one type, sorted by instance id."""
        check_name("service_type", service_type)
        ids = sorted(instance_id for each, instance_id in await self._services() if each == service_type)
        texts = await self._connection.commands([("GET", self._key(service_type, each)) for each in ids]) if ids else []
        return [text.decode() for text in texts if text is not None]

    async def _services(self) -> list[tuple[str, str]]:
        """Type and instance of every key: the known prefix is cut off, and the instance is what follows the last colon.

        Keeps: STORE-09.
        """
        rests = [rest.decode(errors="replace") for rest in await self._connection.scan(self._prefix)]
        return [
            (service_type, instance_id) for service_type, _, instance_id in (rest.rpartition(":") for rest in rests)
        ]

    def _key(self, service_type: str, instance_id: str) -> str:
        """The key of an instance; `ValueError` for an instance id with a colon, at which a type could not be told.

        Keeps: STORE-09.
        """
        check_name("service_type", service_type)
        if ":" in check_name("instance_id", instance_id):
            raise ValueError(f"instance_id must not contain a colon, got {instance_id!r}")
        return f"{self._prefix}{service_type}:{instance_id}"
