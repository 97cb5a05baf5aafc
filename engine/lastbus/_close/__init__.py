"""The close contract. It knows no back end and no event: a bus is whatever drains, listens and holds components."""
