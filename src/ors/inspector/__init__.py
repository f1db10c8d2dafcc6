"""The inspector: a page to look at a server from a browser, and the way to it for servers that have none."""
