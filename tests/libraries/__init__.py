"""Tests of libraries as environments."""
