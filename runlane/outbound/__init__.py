"""Ways out of the platform: one transport for each kind of endpoint, behind one guard."""
