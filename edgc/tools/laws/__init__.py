"""Laws of every aggregator, policy and synchronisation, as pytest runs them: in tests/ and by `edgc check PACKAGE`."""
