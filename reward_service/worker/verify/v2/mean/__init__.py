"""What an expression stands for: a value, a set, a region, an equation, …"""
