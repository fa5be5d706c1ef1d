"""The gateway: what scan hosts reach instead of Temporal. Calls of their own work pass, no others."""
