"""The part of the sandbox that runs in its own processes: template, slots, programs.

These modules are loaded by a fresh interpreter that knows nothing of ``gem_core`` (so that it stays small and holds
no secrets); they import the standard library only, and each other by relative imports.
"""
