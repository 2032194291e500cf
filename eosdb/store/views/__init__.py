"""The contract's views, one .sql file each, recreated after every upgrade."""
