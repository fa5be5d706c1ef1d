"""The scan worker: what runs on hosts that are not trusted. It knows the API and Temporal, nothing else."""
