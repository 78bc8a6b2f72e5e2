"""GET /openapi.json: the HTTP contract as OpenAPI 3.1, generated from the descriptors and their comments."""
