"""Reading requests and writing answers: our own HTTP/1.1 connections, and ASGI."""
