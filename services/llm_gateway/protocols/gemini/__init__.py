"""Google's Gemini API, both of the developer platform and of Vertex AI."""
