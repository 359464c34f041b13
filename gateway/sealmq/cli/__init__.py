"""The operator's command line: a table of commands, each in a module of its own."""
