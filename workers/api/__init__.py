"""HTTP in and out: signed events from webhooks and browsers, health and metrics for operators."""
