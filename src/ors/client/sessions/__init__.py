"""Sessions: how one is created, kept alive, called and deleted."""
