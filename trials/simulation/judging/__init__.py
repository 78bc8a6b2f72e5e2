"""What must hold in every simulated world once its faults are over."""
