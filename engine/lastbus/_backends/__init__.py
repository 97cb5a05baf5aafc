"""Back ends: adapters that differ in storage, never in behaviour. Siblings never import each other."""
