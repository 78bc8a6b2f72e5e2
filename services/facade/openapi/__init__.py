"""GET /openapi.json: the HTTP side of the contract as OpenAPI 3.1, made from the descriptors and their comments."""
