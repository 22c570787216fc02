from hypothesis import settings

# A loaded machine is slow, not wrong.
settings.register_profile("rollick", deadline=None)
settings.load_profile("rollick")
