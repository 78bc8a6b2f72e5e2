"""JSON Web Tokens: verified, with the keys of those who issue them."""
