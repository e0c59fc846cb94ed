"""The same no-op job, written for each of the contestants of `workers_against_peers`."""
