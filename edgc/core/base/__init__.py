"""What every room may use: errors, files, settings, state that is saved, and torch at first use."""
