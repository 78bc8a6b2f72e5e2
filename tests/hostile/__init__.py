"""What peers without a credential can cost: each class of attack against a real service, beside an honest stream."""
