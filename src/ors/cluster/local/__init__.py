"""Workers: server processes on this machine, and their supervisor."""
