"""Reads a configuration folder as the services do, without starting one: what would they refuse?"""
