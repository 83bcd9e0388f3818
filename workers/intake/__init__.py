"""Intake: consume channel.events, believe what is proven, ask the policy, admit, and only then let the offset move."""
