# Runs in MicroPython: boot.py with another sealmq_slots than ours; prints what it puts first in
# sys.path.
# mypy: ignore-errors
import sys

board, folder, text = sys.argv[1:]
sys.path[0] = folder
with open(folder + "/sealmq_slots.py", "w") as f:
    f.write(text)
with open(board + "/boot.py") as f:
    exec(f.read())  # noqa: S102
print(sys.path[0])
