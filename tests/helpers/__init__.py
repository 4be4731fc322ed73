"""What tests share: small models and tables, stand-ins, and oracles written apart from the code under test."""
