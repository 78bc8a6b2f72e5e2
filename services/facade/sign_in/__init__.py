"""Sign-in of people at the console by an OpenID provider: authorization code with PKCE, kept in a sealed cookie."""
