"""Pages and feeds that combine those of all servers."""
