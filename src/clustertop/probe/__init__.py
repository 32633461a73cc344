"""What runs on a node: reads /proc, /sys and NVML, prints one frame a tick, interprets nothing.

Standard library only, Python 3.6 and newer. On the node the package is called ``clustertop_probe``, so its
modules import each other relatively. Its annotations are strings: nothing of ``typing`` is loaded there.
"""
