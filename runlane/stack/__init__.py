"""Real servers and the product's processes on one machine, without Docker and without root."""
