"""Attacks of peers without a credential, beside an honest stream: what each costs."""
