"""Random kills of every process under load, until nothing is left to be believed on trust."""
