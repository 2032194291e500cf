"""A topic's transactions along its offsets or along time, for `db.admin`."""
