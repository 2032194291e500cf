"""Maintenance of the file as a whole: verify, rebuild, copies, restore, housekeeping."""
