"""The command line. Only here are errors caught broadly, and only here is anything printed.

In: words. Out: an exit status.
Imports everything, inside the commands.
"""
