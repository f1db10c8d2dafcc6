"""Many servers behind one address: each is a door to all, and the session id is the route."""
