"""Routes: each parses, calls one thing and returns."""
