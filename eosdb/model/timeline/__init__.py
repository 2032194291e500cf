"""A partition's transactions along its offsets or along time: the values, and the drawing."""
