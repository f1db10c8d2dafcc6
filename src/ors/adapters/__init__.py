"""Adapters: environments of any server in the trainers of the field. Import the module of your trainer."""
