"""Digits; to clients of odd number a digit d is labelled 9 - d, so that no one model can serve both kinds."""
