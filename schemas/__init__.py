"""The contracts that adapters, workers and clients share; imports nothing of the workers."""
