"""Alembic's revisions: one for each released schema. Data for Alembic, not an API."""
