"""Wrappers that change what an agent sees, how long an episode lasts, or what is recorded of it."""
