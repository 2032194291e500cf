"""What is in a file: its tables and views, how it is made, upgraded, identified and guarded."""
