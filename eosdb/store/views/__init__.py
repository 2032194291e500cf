"""The contract's views, one .sql file each, made anew after every upgrade."""
