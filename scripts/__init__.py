"""What makes documents, test data and environments: `python -m scripts.make_notices`, and so on."""
