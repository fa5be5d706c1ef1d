"""Activities of the core and result workers: the effects that workflows order."""
