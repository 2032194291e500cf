"""Records as Arrow record batches, for everything that reads them in bulk; needs pyarrow.

Above the database and below what uses it: Spark, lakehouse tables.
"""
