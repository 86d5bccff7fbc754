"""What every room may use: errors, files, torch at first use, provenance, and what is installed here."""
