"""A method's settings, and the YAML files they are read from."""
