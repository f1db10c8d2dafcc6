"""Tests of tasks from files and data sets."""
