"""What the pages show is what was measured: runs the benches, reduces them, writes the figures.

    python -m evidence [PART...]

`results/` holds what the parts measured, `reduced.json` what `sealmq report` made of it, and the
pages show nothing else. The benches are reached through their commands; of their code only the
tables are imported, which take rows and give Markdown.
"""
