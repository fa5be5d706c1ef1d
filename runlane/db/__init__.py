"""PostgreSQL: every statement of the product. Functions take a connection and never commit."""
