"""Consumer groups: decisions about members and generations, and the rows of groups and offsets."""
