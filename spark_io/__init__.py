"""The Spark side of eosdb lives here; it is installed as `eosdb.spark_io`."""
