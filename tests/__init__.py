"""The tests of Parley; their names are sentences."""
