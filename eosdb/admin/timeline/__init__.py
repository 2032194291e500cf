"""A topic's transactions along its offsets or along time, as `db.admin` reads them."""
