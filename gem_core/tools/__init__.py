"""Tools that an agent calls by text, and the wrapper that gives them to any environment."""
