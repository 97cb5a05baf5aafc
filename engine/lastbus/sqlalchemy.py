"""The SQL back end: a bus and its three stores in PostgreSQL or SQLite. Needs `pip install 'lastbus[sql]'`."""

from lastbus._errors import MissingExtraError

try:
    from lastbus._backends.sqlalchemy.bus import SqlalchemyEventBus as SqlalchemyEventBus
    from lastbus._backends.sqlalchemy.storage import SqlalchemyEventStorage as SqlalchemyEventStorage
    from lastbus._backends.sqlalchemy.subscriptions import (
        SqlalchemyEventSubscriptionStorage as SqlalchemyEventSubscriptionStorage,
    )
    from lastbus._backends.sqlalchemy.tracker import (
        SqlalchemyEventProcessingTracker as SqlalchemyEventProcessingTracker,
    )
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "sqlalchemy":
        raise
    raise MissingExtraError(__name__, "sql") from error
