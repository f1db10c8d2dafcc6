"""How requests arrive and answers leave: our own HTTP/1.1 connections, and ASGI."""
