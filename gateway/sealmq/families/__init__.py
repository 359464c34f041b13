"""Policy families behind one engine: one folder and one line in `[policy] order` for each family.

Pure modules: no socket, file, thread, loop or clock (import-linter holds that).
"""
