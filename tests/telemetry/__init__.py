"""Metric names, log lines and trace headers."""
