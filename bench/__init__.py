"""What the speed claims rest on: our server, a floor and the reference, measured side by side."""
