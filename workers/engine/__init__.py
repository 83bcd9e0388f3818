"""The engine as a program holds it: events in by the registered channel's own object, work in by name, and rest."""
