"""Branches of the catalog, by the domains of the document. Source: Event bridge, Domains in the catalog."""
