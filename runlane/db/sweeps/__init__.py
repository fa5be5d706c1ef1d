"""What the sweeps read and write. A finder gives ids behind a cursor, a page at a time; what it found is
changed by another statement that asks the same condition again, so that a second sweep changes nothing.
"""
