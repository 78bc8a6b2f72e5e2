"""What a store keeps beside the chats."""
