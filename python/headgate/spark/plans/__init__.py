"""How an exchange is planned: the rules that decide, and the explanation of what they decided."""
