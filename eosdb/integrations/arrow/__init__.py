"""Records as Arrow record batches, for reading in bulk; needs pyarrow.

Used by `Database.scan_arrow`, Spark and lakehouse tables.
"""
