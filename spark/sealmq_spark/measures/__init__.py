"""One measure a file: a pure function from the tables of reading.Logs to a table."""
