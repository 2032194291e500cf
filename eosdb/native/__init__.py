"""The accelerator for reading and writing in bulk, in C; everything works without it."""
