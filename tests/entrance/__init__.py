"""What stands at the entrance: the public names, and the words that every room speaks."""
