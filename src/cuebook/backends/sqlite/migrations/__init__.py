"""The way from each older schema to the newest, in Alembic's revisions. Forward only: a copy of the file leads back."""
