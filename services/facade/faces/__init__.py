"""What the faces of other programs' protocols share."""
