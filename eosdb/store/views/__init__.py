"""The documented views, one .sql file each, recreated after every upgrade."""
