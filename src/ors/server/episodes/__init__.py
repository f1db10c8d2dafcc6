"""Environment code at work: episodes, threads, and what is told of failures."""
