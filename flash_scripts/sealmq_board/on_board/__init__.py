"""Scripts that run on a board, in MicroPython: read as files by mpremote_run.py, never imported.

Each has main(args) and says what it found by say(...), a JSON object a line.
"""
