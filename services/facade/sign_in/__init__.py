"""Signs users in to the console with an OpenID provider: authorization code with PKCE, session in a sealed cookie."""
