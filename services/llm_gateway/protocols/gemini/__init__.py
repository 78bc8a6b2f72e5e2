"""Google's Gemini API, of the developer platform and of Vertex AI."""
