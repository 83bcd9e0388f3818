"""The checker: says from records, by a stable name for each, which promises a run of replicas kept.

It is written apart from the product: nothing here imports `workers`, `schemas` or `migrations`, and its SQL is its own.
It reads what was published, what the database holds, what the receiver accepted, and what the agents themselves wrote.
"""
