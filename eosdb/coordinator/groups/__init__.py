"""Consumer groups: decisions about members and generations, and the rows that keep them and offsets."""
