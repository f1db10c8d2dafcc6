"""Models of providers, asked by HTTP."""
