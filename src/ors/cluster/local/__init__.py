"""Workers: server processes of this machine, and their supervisor."""
