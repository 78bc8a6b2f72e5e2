"""Serves POST /v1/responses and GET /v1/responses/{id}."""
