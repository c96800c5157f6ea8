"""How Alembic runs our revisions: on the connection it is handed, inside the transaction that one has begun."""

from alembic import context

from cuebook.backends import tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables.METADATA,
    include_name=tables.is_declared,
    transactional_ddl=True,
)
context.run_migrations()
