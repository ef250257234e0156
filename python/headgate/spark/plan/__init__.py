"""Plans exchanges: checks the call, chooses the way by rules, and makes the DataFrame of the chosen one."""
