"""TARGETs and URLs: from the words of a user to environments, servers and clients."""
