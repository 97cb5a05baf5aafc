"""Ports: what a back end must provide, and what every bus offers."""
