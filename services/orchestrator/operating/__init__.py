"""What those who operate a deployment see of runs, and do about them."""
