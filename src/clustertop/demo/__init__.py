"""A simulated cluster behind real SSH servers on loopback.

``plan`` and ``machine`` say what stands where, ``simulator`` moves it, ``faults`` break it, ``readings`` make of it
what the probe would read; ``session`` and ``server`` speak SSH in a process of their own, which ``launch`` starts.
"""
