"""Expiry: whoever writes also deletes a few rows whose time has come, so that no table outgrows its rows' lives."""

from __future__ import annotations

import logging
from typing import Final

from sqlalchemy import Table, bindparam

from lastbus._backends.sqlalchemy.bites import bite
from lastbus._backends.sqlalchemy.database import Database
from lastbus._clock import Clock
from lastbus._errors import EventStorageError

logger = logging.getLogger("lastbus.sqlalchemy")

BITE_ROWS: Final = 100
BITE_SECONDS: Final = 10.0


class Expiry:
    """Deletes expired rows of one table: `BITE_ROWS` every `BITE_SECONDS`, or at every write while more are due.

    They stay for another `grace_seconds` where somebody may still have a use for them.
    """

    def __init__(self, database: Database, table: Table, clock: Clock, *, grace_seconds: float = 0.0) -> None:
        self._database: Final = database
        self._table: Final = table
        over = table.c.expires_at <= bindparam("before")
        self._bite: Final = bite(table, over, BITE_ROWS, table.c.expires_at)
        self._clock: Final = clock
        self._grace_seconds: Final = grace_seconds
        self._due_at = 0.0

    async def after_write(self) -> None:
        """Take a bite if one is due. A failure costs a WARNING and never the write that came before.

        Keeps: SQL-09.
        """
        now = self._clock.time()
        if now < self._due_at:
            return
        self._due_at = now + BITE_SECONDS
        before = now - self._grace_seconds
        try:
            eaten = await self._database.change("delete_expired", self._bite, {"before": before})
        except EventStorageError as error:
            logger.warning("expired rows of %s stay for now: %s", self._table.name, error)
            return
        if eaten == BITE_ROWS:
            self._due_at = now
