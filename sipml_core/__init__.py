"""What would this network do to the time my training job takes?"""

__version__ = "0.1.0"
