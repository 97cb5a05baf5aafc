"""The SQL back end: PostgreSQL and SQLite through SQLAlchemy's asyncio engine."""
