"""The content of a file: its tables and views, and how it is created, upgraded, identified and guarded."""
