"""What makes documents, test data and environments: `python -m scripts.make_cli`, and so on."""
