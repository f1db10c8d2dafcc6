"""Sessions with their calls and results, API keys and admission. Knows nothing of HTTP."""
