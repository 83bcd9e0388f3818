"""Delivery: replies are journalled, sent, and where the answer was lost, reconciled."""
