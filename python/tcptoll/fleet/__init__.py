"""Runs one study from several vantage points and collects the records: `python -m tcptoll fleet`.

A vantage point is a machine that measures. Python hands out the work and stores the records; `tcptoll merge`
draws the conclusions. Nothing here is imported by `import tcptoll`.
"""
