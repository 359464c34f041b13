"""`sealmq trust`."""
